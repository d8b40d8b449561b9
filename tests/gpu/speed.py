"""Images a second of LeNet training (batch 256, fp32) on this GPU: dtrain with and without steps as graphs and PyTorch eager, in
turns, in one run. Prints all and their ratios; fails when one does not run. run.sh exports bin, data and logs.
"""
import json
import os
import subprocess
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, STEPS, WARM_UP = 256, 400, 40


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def pytorch():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    net = LeNet().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images = torch.rand(60000, 1, 28, 28).pin_memory()
    labels = torch.randint(0, 10, (60000,)).pin_memory()
    for step in range(STEPS + WARM_UP):
        if step == WARM_UP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        at = step * BATCH % 59000
        x = images[at : at + BATCH].cuda(non_blocking=True)
        y = labels[at : at + BATCH].cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    torch.cuda.synchronize()
    return STEPS * BATCH / (time.perf_counter() - start)


def dtrain(turn, graph):
    run = f"{os.environ['logs']}/run-speed-{graph}-{turn}"
    subprocess.run(
        [os.environ["bin"] + "/dtrain", "train", "--device", "cuda", "--data-dir", os.environ["data"], "--model", "lenet",
         "--global-batch-size", str(BATCH), "--lr", "0.05", "--momentum", "0.9", "--max-steps", str(STEPS + WARM_UP),
         "--log-every", "20", "--eval-every", "0", "--checkpoint-every", "0", "--loader-threads", "2", "--cuda-graph", graph,
         "--run-dir", run],
        check=True, stdout=subprocess.DEVNULL)
    with open(f"{run}/metrics.jsonl") as lines:
        rates = [json.loads(line).get("samples_per_second") for line in lines]
    rates = sorted(rate for rate in rates[2:] if rate)
    return rates[len(rates) // 2]


graphs, plain, theirs = [], [], []
for turn in range(3):
    graphs.append(dtrain(turn, "on"))
    plain.append(dtrain(turn, "off"))
    theirs.append(pytorch())
with_graph, without, other = (sorted(rates)[1] for rates in (graphs, plain, theirs))
print(f"dtrain {with_graph:,.0f} images/s as a graph, {without:,.0f} step by step, PyTorch {torch.__version__} eager {other:,.0f}: "
      f"{with_graph / other:.2f} and {without / other:.2f} times")
