"""How far networks are from exact arithmetic after some steps of fine-tuning: dtrain's, and PyTorch's in two layouts.

usage: after_steps.py DTRAIN FOLDER [--steps 1,2,5,10,20,40] [--seed N] [--size N]

The recipe and the batches are those of fine_tune.py; "exact" is PyTorch in float64. A distance is that of all weights
(or running means, or running variances) from the exact ones, as a share of how far those have moved from their first
values. A rule that differs (momentum, decay, unbiased variances, the last incomplete batch) shows from the first step
on at which it differs; rounding grows with the steps in all three alike. Exit code 1 where dtrain is more than 4 times
as far from exact as the worse of PyTorch's layouts.
"""
import argparse, pathlib, subprocess, tempfile

import torch
from fine_tune import BATCH, DECAY, LR, MOMENTUM, dtrain_command, split
from recipes import recipes
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

GROUPS = {"weights": lambda name: name.endswith(("weight", "bias")),
          "running means": lambda name: name.endswith("running_mean"),
          "running variances": lambda name: name.endswith("running_var")}


def batches(options, data, seed, most):
    train = ImageFolder(data / "train", recipes(options.size, options.size * 8 // 7)["imagenet"])
    sampler = DistributedSampler(train, num_replicas=1, rank=0, seed=seed)
    loader, epoch, step = DataLoader(train, BATCH, sampler=sampler, num_workers=1), 0, 0
    while step < most:
        sampler.set_epoch(epoch)
        torch.manual_seed(seed + epoch)
        for batch in loader:
            if step < most:
                yield batch
            step += 1
        epoch += 1


def first_network(weights, classes, seed):
    torch.manual_seed(seed)
    network = resnet18(num_classes=classes)
    network.load_state_dict({name: t for name, t in load_file(weights).items() if not name.startswith("fc.")}, strict=False)
    return network


def copied(network):
    return {name: tensor.detach().double().clone() for name, tensor in network.state_dict().items()}


def trained(network, given, steps, dtype=torch.float32, layout=torch.contiguous_format):
    network.to(dtype=dtype, memory_format=layout).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    states = {}
    for step, (images, labels) in enumerate(given, 1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images.to(dtype=dtype, memory_format=layout)), labels).backward()
        optimizer.step()
        if step in steps:
            states[step] = copied(network)
    return states


def by_dtrain(options, data, weights, step):
    run = data / f"after-{step}"
    subprocess.run(dtrain_command(options, data, weights, options.seed, run) + ["--max-steps", str(step), "--eval-every", "0"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file = run / f"checkpoints/step-{step:08}/model.safetensors"
    return {name: tensor.double() for name, tensor in load_file(file).items()}


def distance(state, exact, first, chosen):
    names = [name for name in exact if chosen(name)]
    away = sum((state[name] - exact[name]).square().sum().item() for name in names)
    moved = sum((exact[name] - first[name]).square().sum().item() for name in names)
    return (away / moved) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 5, 10, 20, 40])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    options.epochs = 1000
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch)
        split(options.folder, data, options.size * 5 // 4)
        weights = str(data / "random.safetensors")
        torch.manual_seed(1000 + options.seed)
        save_file(resnet18().state_dict(), weights)
        given = list(batches(options, data, options.seed, max(options.steps)))
        make = lambda: first_network(weights, len(list((data / "train").iterdir())), options.seed)
        first = copied(make())
        exact = trained(make(), given, options.steps, torch.float64)
        peers = {"PyTorch": trained(make(), given, options.steps),
                 "channels-last": trained(make(), given, options.steps, layout=torch.channels_last)}
        for step in options.steps:
            states = {"dtrain": by_dtrain(options, data, weights, step)} | {name: peer[step] for name, peer in peers.items()}
            for group, chosen in GROUPS.items():
                far = {name: distance(state, exact[step], first, chosen) for name, state in states.items()}
                failed |= far["dtrain"] > 4 * max(far["PyTorch"], far["channels-last"])
                print(f"after {step} steps, {group}: " + ", ".join(f"{name} {value:.2e}" for name, value in far.items()), flush=True)
            tracked = {int(state[name]) for state in states.values() for name in state if name.endswith("num_batches_tracked")}
            failed |= tracked != {step}
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
