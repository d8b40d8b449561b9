"""Images a second of training on this GPU (batch 256): dtrain with and without steps as graphs, PyTorch eager and compiled, in
turns, in one run. Prints all and their ratios; fails when one does not run. run.sh exports bin, data and logs.

usage: speed.py lenet|resnet18|resnet50 [--rounds 3] [--eager-only]
lenet in fp32, the others in bf16, PyTorch by autocast and channels last; resnet50 is torchvision's, on pictures of 224 x 224.
"""
import argparse
import json
import os
import subprocess
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

arguments = argparse.ArgumentParser()
arguments.add_argument("model", choices=["lenet", "resnet18", "resnet50"])
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--eager-only", action="store_true", help="without torch.compile")
arguments = arguments.parse_args()
MODEL = arguments.model
BF16 = MODEL != "lenet"
BATCH, STEPS, WARM_UP = 256, {"lenet": 400, "resnet18": 100, "resnet50": 60}[MODEL], 20 if MODEL == "resnet50" else 40
SHAPE, CLASSES, SAMPLES = ((3, 224, 224), 1000, 1024) if MODEL == "resnet50" else ((1, 28, 28), 10, 60000)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18():
    """The network of tests/parity/resnet: a stem of 7 x 7 with pooling, four stages of two blocks."""
    layers = [nn.Conv2d(1, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        layers += [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def network():
    if MODEL == "resnet50":
        import torchvision
        return torchvision.models.resnet50()
    return LeNet() if MODEL == "lenet" else resnet18()


def pytorch(compiled):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    net = network().cuda()
    if BF16:
        net = net.to(memory_format=torch.channels_last)
    forward = torch.compile(net) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images = torch.rand(SAMPLES, *SHAPE).pin_memory()
    labels = torch.randint(0, CLASSES, (SAMPLES,)).pin_memory()
    for step in range(STEPS + WARM_UP):
        if step == WARM_UP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        at = step * BATCH % (SAMPLES - BATCH + 1)
        x = images[at : at + BATCH].cuda(non_blocking=True)
        y = labels[at : at + BATCH].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=BF16):
            loss = F.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    return STEPS * BATCH / (time.perf_counter() - start)


def dtrain(turn, graph):
    run = f"{os.environ['logs']}/run-speed-{MODEL}-{graph}-{turn}"
    data = ["--dataset", f"synthetic:3x224x224,{CLASSES},{SAMPLES}"] if MODEL == "resnet50" else []
    subprocess.run(
        [os.environ["bin"] + "/dtrain", "train", "--device", "cuda", "--data-dir", os.environ["data"], *data, "--model", MODEL,
         "--precision", "bf16" if BF16 else "fp32",
         "--global-batch-size", str(BATCH), "--lr", "0.05", "--momentum", "0.9", "--max-steps", str(STEPS + WARM_UP),
         "--log-every", "20", "--eval-every", "0", "--checkpoint-every", "0", "--cuda-graph", graph,
         "--loader-threads", "8" if MODEL == "resnet50" else "2",
         "--run-dir", run],
        check=True, stdout=subprocess.DEVNULL)
    with open(f"{run}/metrics.jsonl") as lines:
        rates = [json.loads(line).get("samples_per_second") for line in lines]
    rates = sorted(rate for rate in rates[2:] if rate)
    return rates[len(rates) // 2]


ways = {"dtrain as a graph": lambda turn: dtrain(turn, "on"), "step by step": lambda turn: dtrain(turn, "off"),
        f"PyTorch {torch.__version__} eager": lambda _: pytorch(False)}
if not arguments.eager_only:
    ways["compiled"] = lambda _: pytorch(True)
rates = {way: [] for way in ways}
for turn in range(arguments.rounds):
    for way, measure in ways.items():
        rates[way].append(measure(turn))
medians = {way: sorted(found)[len(found) // 2] for way, found in rates.items()}
best = max(rate for way, rate in medians.items() if way in ("compiled", list(ways)[2]))
print(f"{MODEL}, images/s: " + ", ".join(f"{way} {rate:,.0f}" for way, rate in medians.items())
      + f": as a graph {medians['dtrain as a graph'] / best:.2f} times PyTorch's best")
