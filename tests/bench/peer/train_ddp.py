"""The PyTorch peer of `dtrain train --model lenet|resnet18 --precision fp32|bf16`: DDP on gloo, launched by torchrun, written to be fast.

The whole data set is in memory before the first step, a batch is one gather, gradients live in DDP's buckets, and
the host reads the loss only where it is logged. Writes metrics.jsonl as dtrain does, so that one program reads both.
"""
import argparse
import gzip
import json
import os
import struct
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler


class LeNet(nn.Module):
    """conv 1->20 k3, pool, conv 20->50 k5, pool, 800->128, 128->10: dtrain's lenet, parameter for parameter."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Residual(nn.Module):
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), convolutions with bias."""

    def __init__(self, cin, cout, project=False, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv3 = nn.Conv2d(cin, cout, 1, stride=stride) if project else None
        self.bn1 = nn.BatchNorm2d(cout)
        self.bn2 = nn.BatchNorm2d(cout)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (self.conv3(x) if self.conv3 is not None else x), inplace=True)


def resnet18():
    """dtrain's resnet18, parameter for parameter."""
    net = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
    for i, (cin, cout) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], 1):
        first = Residual(cin, cout, project=i > 1, stride=1 if i == 1 else 2)
        net.add_module(f"resnet_block{i}", nn.Sequential(first, Residual(cout, cout)))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))
    return net


def read_idx(path):
    raw = gzip.open(path).read()
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


class Images:
    """All images in memory: as float32 in [0, 1] (a batch is one gather) or as bytes (a quarter of the memory)."""

    def __init__(self, folder, storage, memory_format):
        images = torch.from_numpy(read_idx(f"{folder}/train-images-idx3-ubyte.gz").copy()).unsqueeze(1)
        self.labels = torch.from_numpy(read_idx(f"{folder}/train-labels-idx1-ubyte.gz").astype(np.int64))
        self.images = images.float().div_(255) if storage == "float32" else images
        self.memory_format = memory_format

    def __len__(self):
        return len(self.images)

    def batch(self, indices):
        images = self.images[indices]
        if images.dtype == torch.uint8:
            images = images.float().div_(255)
        return images.contiguous(memory_format=self.memory_format), self.labels[indices]


class Phases:
    """Seconds spent in each part of a step; eager CPU work is done when the call returns, so the clock tells all."""

    def __init__(self, enabled):
        self.enabled, self.seconds, self.last = enabled, {}, 0.0

    def start(self):
        self.last = time.perf_counter()

    def end(self, name):
        if self.enabled:
            now = time.perf_counter()
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
            self.last = now


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data-dir", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--global-batch-size", type=int, default=256)
    p.add_argument("--max-steps", type=int, required=True)
    p.add_argument("--model", choices=["lenet", "resnet18"], default="lenet")
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log-every", type=int, default=1)
    p.add_argument("--run-dir", required=True)
    p.add_argument("--storage", choices=["float32", "uint8"], default="float32")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--fused", action="store_true", help="SGD's fused implementation")
    p.add_argument("--profile", action="store_true")
    return p.parse_args()


def main():
    a = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    memory_format = torch.channels_last if a.channels_last else torch.contiguous_format

    data = Images(a.data_dir, a.storage, memory_format)
    sampler = DistributedSampler(range(len(data)), world, rank, shuffle=True, seed=a.seed)
    torch.manual_seed(a.seed)
    net = (LeNet() if a.model == "lenet" else resnet18()).to(memory_format=memory_format)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True, broadcast_buffers=False)
    if a.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), a.lr, fused=a.fused or None)

    os.makedirs(a.run_dir, exist_ok=True)
    metrics = open(f"{a.run_dir}/metrics.jsonl", "w", buffering=1) if rank == 0 else None
    per_worker = a.global_batch_size // world
    phases = Phases(a.profile)
    step, epoch = 0, 0
    while step < a.max_steps:
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for begin in range(0, len(order) - per_worker + 1, per_worker):
            phases.start()
            images, labels = data.batch(order[begin : begin + per_worker])
            phases.end("data")
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
                loss = F.cross_entropy(model(images), labels)
            phases.end("forward")
            loss.backward()
            phases.end("backward and all-reduce")
            optimizer.step()
            phases.end("optimizer")
            step += 1
            if step == 1 or step % a.log_every == 0 or step == a.max_steps:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if metrics:
                    line = {"event": "step", "step": step, "epoch": epoch, "loss": mean.item() / world, "time": time.time()}
                    metrics.write(json.dumps(line) + "\n")
            if step == a.max_steps:
                break
        epoch += 1
    if rank == 0:
        milliseconds = {name: 1000 * s / step for name, s in phases.seconds.items()}
        with open(f"{a.run_dir}/summary.json", "w") as f:
            json.dump({"steps": step, "torch": torch.__version__, "phase_milliseconds_per_step": milliseconds}, f)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
