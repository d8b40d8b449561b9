"""The losses of the first steps on pictures, by dtrain and by PyTorch, from the same weights and with the same batches.

usage: losses.py DTRAIN FOLDER [--model resnet50] [--steps 20] [--batch 8] [--size 224] [--lr 0.0005] [--seed 0]

FOLDER has a folder for each class. "exact" is PyTorch in float64; PyTorch's float32 is trained in both of its layouts,
which round otherwise. Batch norm makes rounding grow from step to step: exit code 1 where a loss of dtrain's is further
from exact than 4 times the largest distance of PyTorch's so far, and than 1e-6 of it.
"""
import argparse, json, pathlib, subprocess, tempfile

import torch
import torchvision
from fine_tune import DECAY, MOMENTUM, split
from recipes import recipes
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder


def by_dtrain(options, data, weights):
    run = data / "run"
    subprocess.run([options.dtrain, "train", "--model", options.model, "--dataset",
                    f"folder:{data / 'train'},test={data / 'test'},size={options.size},resize={options.size * 8 // 7}",
                    "--init-from", weights, "--augment", "imagenet", "--like-torchvision", "1", "--seed", str(options.seed),
                    "--max-steps", str(options.steps), "--eval-every", "0", "--checkpoint-every", "0", "--global-batch-size",
                    str(options.batch), "--lr", str(options.lr), "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY),
                    "--run-dir", run, "--threads", "1", "--log-every", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]


def batches(options, data):
    train = ImageFolder(data / "train", recipes(options.size, options.size * 8 // 7)["imagenet"])
    sampler = DistributedSampler(train, num_replicas=1, rank=0, seed=options.seed)
    loader, given, epoch = DataLoader(train, options.batch, sampler=sampler, num_workers=1), [], 0
    while True:
        sampler.set_epoch(epoch)
        torch.manual_seed(options.seed + epoch)
        for batch in loader:
            given.append(batch)
            if len(given) == options.steps:
                return given
        epoch += 1


def by_pytorch(options, weights, given, classes, dtype, layout):
    network = getattr(torchvision.models, options.model)(num_classes=classes)
    network.load_state_dict(load_file(weights))
    network.to(dtype=dtype, memory_format=layout).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=options.lr, momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    for images, labels in given:
        loss = torch.nn.functional.cross_entropy(network(images.to(dtype=dtype, memory_format=layout)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.0005)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch)
        split(options.folder, data)
        classes, weights = len(list((data / "train").iterdir())), str(data / "weights.safetensors")
        torch.manual_seed(options.seed)
        save_file(getattr(torchvision.models, options.model)(num_classes=classes).state_dict(), weights)
        ours, given = by_dtrain(options, data, weights), batches(options, data)
        plain, last = torch.contiguous_format, torch.channels_last
        exact = by_pytorch(options, weights, given, classes, torch.float64, plain)
        theirs = [by_pytorch(options, weights, given, classes, torch.float32, layout) for layout in (plain, last)]
    good, largest = len(ours) == options.steps, 0.0
    print(f"{options.model}, {options.steps} steps of {options.batch} pictures of {options.size} pixels; distances from exact")
    print("step   exact    dtrain   PyTorch, channels first, last")
    for step, true in enumerate(exact[:len(ours)]):
        apart = [abs(losses[step] - true) for losses in (ours, *theirs)]
        largest = max(largest, *apart[1:])
        bound = max(4 * largest, 1e-6 * abs(true))
        good = good and apart[0] <= bound
        print(f"{step + 1:4} {true:8.4f}   {apart[0]:.1e}   {apart[1]:.1e}, {apart[2]:.1e}" + ("" if apart[0] <= bound else "   FAR"))
    raise SystemExit(0 if good else 1)


main()
