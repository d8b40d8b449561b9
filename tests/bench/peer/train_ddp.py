"""The PyTorch peer of `dtrain train --model lenet|resnet18 --precision fp32|bf16`: DDP on gloo, launched by torchrun, written to be fast.

The whole data set is in memory before the first step, a batch is one gather, gradients live in DDP's buckets, and
the host reads the loss only where it is logged. Writes metrics.jsonl as dtrain does, so that one program reads both.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from parts import Images, LeNet, resnet18


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
