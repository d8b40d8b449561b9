"""examples/contrastive in PyTorch: the same weights, samples and steps, under DDP, resumed from its last checkpoint.

Run: python contrastive.py [--epochs N] [--out FILE]; or torchrun --nproc_per_node=2 contrastive.py. --out writes each step's loss.
"""
import argparse, json, os
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
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
for name, value in dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29537").items():
    os.environ.setdefault(name, value)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def waves(size):
    i, k = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(64)
    views = []
    for view in range(2):
        phase = 0.7 * i + 2.1 * view
        contrast = 1 + 0.3 * torch.sin(phase * i)
        along = torch.cos(0.1 * i) * (k % 8) + torch.sin(0.1 * i) * (k // 8)
        views.append((contrast * torch.sin(along + phase)).float().view(size, 1, 8, 8))
    return TensorDataset(*views)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16))

    def forward(self, first, second):
        return F.normalize(self.body(first)), F.normalize(self.body(second))


def finds(ours, theirs):
    theirs = torch.cat(dist_nn.all_gather(theirs))
    return F.cross_entropy(ours @ theirs.T / 0.2, torch.arange(len(ours)) + rank * len(ours))


torch.manual_seed(a.seed)
network = Encoder()
model = DistributedDataParallel(network)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.003, weight_decay=0.01)
data = waves(640)
sampler = DistributedSampler(data, seed=a.seed)
loader = DataLoader(data, batch_size=a.global_batch_size // world, sampler=sampler)
state = dict(network=network, optimizer=optimizer)
start = 0
if a.checkpoint and os.path.exists(a.checkpoint):
    saved = torch.load(a.checkpoint)
    start = saved["epoch"]
    for key, part in state.items():
        part.load_state_dict(saved[key])
losses = []
for epoch in range(start, a.epochs):
    sampler.set_epoch(epoch)
    for first, second in loader:
        optimizer.zero_grad()
        first, second = model(first, second)
        loss = finds(first, second) + finds(second, first)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if a.checkpoint and rank == 0:
        torch.save(dict(epoch=epoch + 1, **{key: part.state_dict() for key, part in state.items()}), a.checkpoint)
if a.out and rank == 0:
    json.dump(dict(torch=torch.__version__, losses=losses), open(a.out, "w"))
dist.destroy_process_group()
