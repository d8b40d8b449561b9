"""ResNet-18 fine-tuned on a folder of pictures by dtrain and by torchvision's recipe in PyTorch, from the same weights.

usage: fine_tune.py DTRAIN FOLDER [--weights FILE | --garments FILE] [--seeds N] [--first-seed N] [--epochs N]
       [--folds N] [--first-fold N] [--lr X] [--decay-every N] [--size N] [--small]
       [--control]

FOLDER has a folder for each class (Debian's tuxpaint-stamps-default: 16). One of five pictures of a class is tested on;
with --folds 5 each seed trains five times, and is tested on each picture, of classes of five or more once.
Without --weights (safetensors of torchvision's resnet18) they are random ones for 1000 classes, seeded alike; with
--garments they are trained before on Fashion-MNIST's pictures of FILE (t10k-images-idx3-ubyte.gz, its labels beside
it). Both replace the head, and see the same batches (--like-torchvision 1). --decay-every: epochs after which the
learning rate falls to a tenth (StepLR, 30 of 90 in torchvision's script). Exit code 1 where the mean accuracies differ
by more than a point. Rounding alone makes two runs part after some steps; --control: PyTorch once more, on channels-last
memory, which rounds otherwise: how far it is from itself. --small: pictures are made smaller once, before both train
on them, so that many seeds take little time.
What a run learned is also evaluated by PyTorch, from dtrain's checkpoint: the same number of pictures must be right.
"""
import argparse, gzip, itertools, json, pathlib, subprocess, tempfile

import numpy
import torch
from PIL import Image
from recipes import recipes
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

BATCH, LR, MOMENTUM, DECAY = 32, 0.02, 0.9, 1e-4


def split(folder, target, small=None, fold=1):
    """Links, or pictures whose shorter side is `small`: train and test (one of five), each with all classes."""
    for kind in sorted(p for p in folder.iterdir() if p.is_dir()):
        files = sorted(p for p in kind.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp"))
        each = min(5, len(files))
        for i, file in enumerate(files):
            link = target / ("test" if i % each == fold % each else "train") / kind.name / f"{i:05}{file.suffix.lower()}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if small is None:
                link.symlink_to(file.resolve())
            else:
                picture = Image.open(file).convert("RGB")
                scale = min(1.0, small / min(picture.size))
                picture.resize([max(1, round(side * scale)) for side in picture.size]).save(link.with_suffix(".png"))


def trained_on_garments(options, data):
    """Weights after three epochs of the pictures of options.garments, enlarged to options.size."""
    images = numpy.frombuffer(gzip.open(options.garments).read(), numpy.uint8, offset=16).reshape(-1, 28, 28)
    names = options.garments.with_name(options.garments.name.replace("images-idx3", "labels-idx1"))
    labels = numpy.frombuffer(gzip.open(names).read(), numpy.uint8, offset=8)
    for label in range(10):
        (data / f"garments/{label}").mkdir(parents=True)
    for i, (image, label) in enumerate(zip(images, labels)):
        picture = Image.fromarray(image).convert("RGB").resize([options.size] * 2)
        picture.save(data / f"garments/{label}/{i:05}.png", compress_level=1)
    subprocess.run([options.dtrain, "train", "--model", "resnet18-imagenet", "--dataset",
                    f"folder:{data / 'garments'},size={options.size}", "--epochs", "3", "--global-batch-size", "64",
                    "--lr", "0.05", "--momentum", "0.9", "--lr-schedule", "cosine", "--run-dir", data / "first",
                    "--threads", "2"], check=True, stdout=subprocess.DEVNULL)
    return str(max((data / "first/checkpoints").glob("step-*")) / "model.safetensors")


def dtrain_command(options, data, weights, seed, run):
    return [options.dtrain, "train", "--model", "resnet18-imagenet", "--dataset",
            f"folder:{data / 'train'},test={data / 'test'},size={options.size},resize={options.size * 8 // 7}",
            "--init-from", weights, "--init-partial", "--augment", "imagenet", "--like-torchvision", "1",
            "--seed", str(seed), "--epochs", str(options.epochs), "--global-batch-size", str(BATCH), "--lr", str(options.lr),
            "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY), "--run-dir", run, "--threads", "1", "--log-every", "1",
            *(["--lr-schedule", "step", "--lr-decay-at", ",".join(map(str, decays(options)))] if decays(options) else [])]


def decays(options):
    return list(range(options.decay_every, options.epochs, options.decay_every))


def by_dtrain(options, data, weights, seed):
    run = data / f"run-{seed}"
    result = subprocess.run(dtrain_command(options, data, weights, seed, run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(f"fine_tune.py: dtrain ended with {result.returncode}: {result.stderr}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["accuracy"] for line in lines if "accuracy" in line][-1], [line["loss"] for line in lines if "accuracy" not in line and "loss" in line]


def by_pytorch(options, data, weights, seed, layout=torch.contiguous_format):
    changes = recipes(options.size, options.size * 8 // 7)
    train, test = ImageFolder(data / "train", changes["imagenet"]), ImageFolder(data / "test", changes["none"])
    torch.manual_seed(seed)
    network = resnet18(num_classes=len(train.classes))
    network.load_state_dict({name: t for name, t in load_file(weights).items() if not name.startswith("fc.")}, strict=False)
    network.to(memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), lr=options.lr, momentum=MOMENTUM, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, options.decay_every, 0.1)
    sampler, losses = DistributedSampler(train, num_replicas=1, rank=0, seed=seed), []
    loader = DataLoader(train, BATCH, sampler=sampler, num_workers=1)
    for epoch in range(options.epochs):
        network.train()
        sampler.set_epoch(epoch)
        torch.manual_seed(seed + epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(network(images.to(memory_format=layout)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
    return accuracy(network, test), losses


def accuracy(network, test):
    network.eval()
    with torch.no_grad():
        right = sum((network(images).argmax(1) == labels).sum().item() for images, labels in DataLoader(test, BATCH))
    return right / len(test)


def learned_by_dtrain(options, data, seed):
    """The accuracy of dtrain's last checkpoint, evaluated by PyTorch."""
    test = ImageFolder(data / "test", recipes(options.size, options.size * 8 // 7)["none"])
    network = resnet18(num_classes=len(test.classes))
    network.load_state_dict(load_file(max((data / f"run-{seed}/checkpoints").glob("step-*")) / "model.safetensors"))
    return accuracy(network, test)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--weights", default=None)
    parser.add_argument("--garments", type=pathlib.Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--first-fold", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=LR)
    parser.add_argument("--decay-every", type=int, default=1000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    accuracies = {"dtrain": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as scratch:
        shared = pathlib.Path(scratch)
        if options.garments is not None:
            options.weights = trained_on_garments(options, shared)
        folds = [(options.first_fold + i) % 5 for i in range(options.folds)]
        for fold in folds:
            split(options.folder, shared / f"fold-{fold}", options.size * 5 // 4 if options.small else None, fold)
        for seed, fold in itertools.product(range(options.first_seed, options.first_seed + options.seeds), folds):
            data = shared / f"fold-{fold}"
            weights = options.weights or str(data / f"random-{seed}.safetensors")
            if options.weights is None:
                torch.manual_seed(1000 + seed)
                save_file(resnet18().state_dict(), weights)
            ours, our_losses = by_dtrain(options, data, weights, seed)
            again = learned_by_dtrain(options, data, seed)
            theirs, their_losses = by_pytorch(options, data, weights, seed)
            accuracies["dtrain"].append(ours), accuracies["PyTorch"].append(theirs)
            if options.control:
                control = by_pytorch(options, data, weights, seed, torch.channels_last)[0]
                accuracies.setdefault("PyTorch on channels-last memory", []).append(control)
            first = [f"{a:.6f} {b:.6f}" for a, b in zip(our_losses[:3], their_losses[:3])]
            print(f"seed {seed}, fold {fold}: dtrain {ours:.4f} (its network in PyTorch {again:.4f}), PyTorch {theirs:.4f}; "
                  f"losses of the first steps {', '.join(first)}; last {our_losses[-1]:.4f} {their_losses[-1]:.4f}", flush=True)
    differences = torch.tensor(accuracies["dtrain"]) - torch.tensor(accuracies["PyTorch"])
    error = differences.std().item() / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    means = {name: sum(values) / len(values) for name, values in accuracies.items()}
    print("mean accuracy: " + ", ".join(f"{name} {value:.4f}" for name, value in means.items()) +
          f"; difference {differences.mean().item():+.4f}, standard error {error:.4f}")
    return 0 if abs(differences.mean().item()) <= 0.01 else 1


if __name__ == "__main__":
    raise SystemExit(main())
