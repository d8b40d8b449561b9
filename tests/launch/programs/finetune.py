"""examples/finetune in PyTorch: the same weights, samples and steps, under DDP, resumed from its last checkpoint.

Run: python finetune.py [--epochs N] [--out FILE]; or torchrun --nproc_per_node=2 finetune.py. --out writes each step's loss.
"""
import argparse, json, os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=4)
p.add_argument("--global-batch-size", type=int, default=64)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--checkpoint", default="")
p.add_argument("--out", default="")
a = p.parse_args()
for name, value in dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29534").items():
    os.environ.setdefault(name, value)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def spirals(size):
    i = torch.arange(size)
    turn = (i // 2).double() / (size // 2)
    side = (i % 2).double() * 2 - 1
    points = torch.stack([side * turn * torch.cos(6 * turn), side * turn * torch.sin(6 * turn)], 1)
    return TensorDataset(points.float(), i % 2)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.neck, self.head = nn.Linear(2, 64), nn.Linear(64, 32), nn.Linear(32, 2)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.neck(torch.tanh(self.body(x * 4.0)))))


torch.manual_seed(a.seed)
network = Network()
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD([dict(params=network.neck.parameters(), lr=0.02),
                             dict(params=network.head.parameters(), lr=0.2, weight_decay=1e-3)], momentum=0.9)
data = spirals(640)
sampler = DistributedSampler(data, seed=a.seed)
loader = DataLoader(data, batch_size=a.global_batch_size // world, sampler=sampler)
steps = len(loader)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (s + 1) / 8 if s < 8 else 0.95 ** (s / steps))
state = dict(network=network, optimizer=optimizer, schedule=schedule)
first = 0
if a.checkpoint and os.path.exists(a.checkpoint):
    saved = torch.load(a.checkpoint)
    first = saved["epoch"]
    for key, part in state.items():
        part.load_state_dict(saved[key])
losses = []
for epoch in range(first, a.epochs):
    sampler.set_epoch(epoch)
    for points, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if a.checkpoint and rank == 0:
        torch.save(dict(epoch=epoch + 1, **{key: part.state_dict() for key, part in state.items()}), a.checkpoint)
if a.out and rank == 0:
    json.dump(dict(torch=torch.__version__, losses=losses), open(a.out, "w"))
dist.destroy_process_group()
