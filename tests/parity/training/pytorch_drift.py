"""How far PyTorch drifts from its own recorded LeNet losses (../golden.safetensors) in the two lr 0.2 traces.

Each line is recorded minus computed, step by step, for one honest way to compute the same thing: float32, float32
channels-last, the average over ranks that DistributedDataParallel makes, float64.

Run: python3 pytorch_drift.py [--data DIR]
"""
import argparse, gzip, pathlib, struct, sys
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data.distributed import DistributedSampler

tests = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(tests / "support"))
import golden

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--steps", type=int, default=15)
options = parser.parse_args()
torch.set_num_threads(1)


def idx(name):
    raw = gzip.open(f"{options.data}/{name}.gz").read()
    rank = raw[3]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(struct.unpack(">" + "I" * rank, raw[4 : 4 + 4 * rank]))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def losses(way, world, order):
    torch.manual_seed(0)
    net, per = LeNet(), 256 // world
    if way == "float64":
        net = net.double()
    if way == "channels-last":
        net = net.to(memory_format=torch.channels_last)
    optimizer, result = torch.optim.SGD(net.parameters(), 0.2), []
    for step in range(options.steps):
        parts = [order[rank][step * per : (step + 1) * per] for rank in range(world)]
        if way != "ddp":
            parts = [[i for part in parts for i in part]]
        optimizer.zero_grad()
        total = 0.0
        for part in parts:
            inputs = images[part].double() if way == "float64" else images[part]
            loss = F.cross_entropy(net(inputs), labels[part]) / len(parts)
            loss.backward()
            total += loss.item()
        optimizer.step()
        result.append(total)
    return result


images = torch.tensor(idx("train-images-idx3-ubyte")).float().div_(255).unsqueeze(1)
labels = torch.tensor(idx("train-labels-idx1-ubyte").astype(np.int64))
traces = golden.load(tests / "parity/golden.safetensors")["trace_lenet"]
for number in (0, 1):
    trace = traces[number]
    order = [list(DistributedSampler(range(len(images)), trace["world"], rank, shuffle=True, seed=0)) for rank in range(trace["world"])]
    for way in ("float32", "channels-last", "ddp", "float64"):
        drift = [a - b for a, b in zip(trace["losses"], losses(way, trace["world"], order))]
        print(f"trace {number} {way:14} largest {max(map(abs, drift)):.1e}:", " ".join(f"{d:.0e}" for d in drift))
