"""examples/byol in PyTorch: the same weights, samples and steps, under DDP, resumed from its last checkpoint.

Run: python byol.py [--epochs N] [--out FILE]; or torchrun --nproc_per_node=2 byol.py. --out writes each step's loss.
"""
import argparse, copy, json, os
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
for name, value in dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29535").items():
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


def head(inputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), head(288))
        self.predictor = head(16)

    def forward(self, first, second):
        return self.predictor(self.online(first)), self.predictor(self.online(second))


def apart(a, b):
    return (2 - 2 * F.cosine_similarity(a, b)).mean()


torch.manual_seed(a.seed)
network = Online()
target = copy.deepcopy(network.online).requires_grad_(False)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
data = waves(640)
sampler = DistributedSampler(data, seed=a.seed)
loader = DataLoader(data, batch_size=a.global_batch_size // world, sampler=sampler)
state = dict(network=network, target=target, optimizer=optimizer)
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
        of_first, of_second = model(first, second)
        loss = apart(of_first, target(second)) + apart(of_second, target(first))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for theirs, ours in zip(target.parameters(), network.online.parameters()):
                theirs.mul_(0.99).add_(ours, alpha=0.01)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if a.checkpoint and rank == 0:
        torch.save(dict(epoch=epoch + 1, **{key: part.state_dict() for key, part in state.items()}), a.checkpoint)
if a.out and rank == 0:
    json.dump(dict(torch=torch.__version__, losses=losses), open(a.out, "w"))
dist.destroy_process_group()
