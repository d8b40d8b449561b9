"""Networks for images beside PyTorch, one process of one thread each, in turns: the median time of a training step on
random images, without the first ones, what dtrain's first step takes longer than that, and the peak memory. PyTorch runs
channels-last, which is its fastest way on CPUs, but for the MLP and LeNet. A busy machine makes these figures worthless.

usage: networks.py [--rounds 3] [--steps 12] [MODEL:BATCH:PRECISION…]
  MODEL: mlp, lenet, resnet18 (28 x 28, one channel), resnet50 (224 x 224, torchvision's); PRECISION: fp32 or bf16
DTRAIN_BIN: where dtrain is (default build/release/bin). Run it with a Python that has torch, and torchvision for resnet50.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from transformer import run

JOBS = ["mlp:16:fp32", "mlp:64:fp32", "lenet:128:fp32", "resnet18:32:fp32", "resnet18:32:bf16", "resnet50:8:fp32"]
SHAPES = {"mlp": (1, 28, 28, 10), "lenet": (1, 28, 28, 10), "resnet18": (1, 28, 28, 10), "resnet50": (3, 224, 224, 1000)}
WARM_UP = 2


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--peer", help=argparse.SUPPRESS)  # this process is PyTorch's run, which writes here
    p.add_argument("jobs", nargs="*", default=JOBS, metavar="MODEL:BATCH:PRECISION")
    a = p.parse_args()
    for job in a.jobs:
        parts = job.split(":")
        if len(parts) != 3 or parts[0] not in SHAPES or not parts[1].isdigit() or parts[2] not in ("fp32", "bf16"):
            p.error(f"expected MODEL:BATCH:PRECISION of {', '.join(SHAPES)}, got '{job}'")
    if a.steps < WARM_UP + 2 or a.rounds < 1:
        p.error(f"expected at least {WARM_UP + 2} steps and one round")
    return a


def network(model):
    import torch.nn as nn

    from parts import LeNet, resnet18

    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if model == "resnet50":
        import torchvision

        return torchvision.models.resnet50()
    return LeNet() if model == "lenet" else resnet18()


def train_peer(job, path):
    import torch
    import torch.nn.functional as F

    model, batch, precision = job.split(":")
    torch.set_num_threads(1)
    layout = torch.contiguous_format if model in ("mlp", "lenet") else torch.channels_last
    *shape, classes = SHAPES[model]
    net = network(model).to(memory_format=layout)
    images = torch.rand(int(batch), *shape).contiguous(memory_format=layout)
    labels = torch.randint(classes, (int(batch),))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    ends = []
    for _ in range(int(os.environ["STEPS"])):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.time())
    Path(path).write_text(json.dumps(ends))


def peer(job, steps, folder):
    path = f"{folder}/peer"
    os.environ["STEPS"] = str(steps)
    usage = run([sys.executable, __file__, "--peer", path, job])
    return json.loads(Path(path).read_text()), usage.ru_maxrss / 1024, None


def dtrain(job, steps, folder):
    """When each step ended, in seconds, the peak MiB, and the milliseconds of the first step."""
    model, batch, precision = job.split(":")
    channels, height, width, classes = SHAPES[model]
    images = f"synthetic:{channels}x{height}x{width},{classes},{int(batch) * 4}"
    run_dir = tempfile.mkdtemp(dir=folder)
    usage = run([str(Path(os.environ.get("DTRAIN_BIN", "build/release/bin")) / "dtrain"), "train", "--model", model, "--dataset", images,
                 "--batch-size", batch, "--max-steps", str(steps), "--lr", "0.01", "--precision", precision, "--device", "cpu",
                 "--threads", "1", "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "0", "--resume", "never",
                 "--run-dir", run_dir])
    lines = [json.loads(line) for line in Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    done = [line for line in lines if line.get("event") == "step"]
    return [line["time"] for line in done], usage.ru_maxrss / 1024, 1e3 * int(batch) / done[0]["samples_per_second"]


def main():
    a = parse_arguments()
    if a.peer:
        return train_peer(a.jobs[0], a.peer)
    print(f"one process of one thread, {a.steps} steps, medians of {a.rounds} rounds (least to most); load {os.getloadavg()[0]:.2f}")
    print(f"{'':20}{'dtrain, ms':>28}{'PyTorch, ms':>28}{'ratio':>8}{'first + ms':>12}{'MiB':>6}{'PyTorch':>9}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for job in a.jobs:
            found = {dtrain: [], peer: []}
            for index in range(a.rounds):
                for side in (dtrain, peer) if index % 2 == 0 else (peer, dtrain):
                    ends, peak, first = side(job, a.steps, folder)
                    steps = [1e3 * (after - before) for before, after in zip(ends[WARM_UP - 1 :], ends[WARM_UP:])]
                    middle = statistics.median(steps)
                    found[side].append((middle, peak, first and first - middle))
            cells, medians = "", []
            for rounds in found.values():
                times = [t for t, _, _ in rounds]
                medians.append(statistics.median(times))
                cells += f"{f'{medians[-1]:.2f} ({min(times):.2f} to {max(times):.2f})':>28}"
            peaks = [statistics.median(m for _, m, _ in rounds) for rounds in found.values()]
            first = statistics.median(f for _, _, f in found[dtrain])
            print(f"{job:20}{cells}{medians[1] / medians[0]:8.2f}{first:12.1f}{peaks[0]:6.0f}{peaks[1]:9.0f}", flush=True)


if __name__ == "__main__":
    main()
