"""examples/gan in PyTorch: the same weights, samples and steps, under DDP, resumed from its last checkpoint.

Run: python gan.py [--epochs N] [--out FILE]; or torchrun --nproc_per_node=2 gan.py. --out writes each step's losses.
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
for name, value in dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533").items():
    os.environ.setdefault(name, value)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def ring(size):
    i = torch.arange(size, dtype=torch.float64)
    noise = torch.stack([torch.sin(i * (k + 1) + k) for k in range(8)], 1)
    return TensorDataset(torch.stack([torch.cos(0.1 * i), torch.sin(0.1 * i)], 1).float(), noise.float())


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs))


def says(logits, real):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))


torch.manual_seed(a.seed)
generator, discriminator = mlp(8, 2), mlp(2, 1)
g, d = DistributedDataParallel(generator), DistributedDataParallel(discriminator)
d_optimizer = torch.optim.Adam(d.parameters(), lr=0.002, betas=(0.5, 0.999))
g_optimizer = torch.optim.Adam(g.parameters(), lr=0.001, betas=(0.5, 0.999))
data = ring(640)
sampler = DistributedSampler(data, seed=a.seed)
loader = DataLoader(data, batch_size=a.global_batch_size // world, sampler=sampler)
state = dict(g=generator, d=discriminator, go=g_optimizer, do=d_optimizer)
first = 0
if a.checkpoint and os.path.exists(a.checkpoint):
    saved = torch.load(a.checkpoint)
    first = saved["epoch"]
    for key, part in state.items():
        part.load_state_dict(saved[key])
losses = []
for epoch in range(first, a.epochs):
    sampler.set_epoch(epoch)
    for real, noise in loader:
        d_optimizer.zero_grad()
        with torch.no_grad():
            made = g(noise)
        judged = d(torch.cat([real, made])).flatten()
        d_loss = says(judged[:len(real)], 1.0) + says(judged[len(real):], 0.0)
        d_loss.backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        g_loss = says(discriminator(g(noise)).flatten(), 1.0)
        g_loss.backward()
        g_optimizer.step()
        both = torch.stack([d_loss.detach(), g_loss.detach()])
        dist.all_reduce(both)
        losses.append((both / world).tolist())
    if a.checkpoint and rank == 0:
        torch.save(dict(epoch=epoch + 1, **{key: part.state_dict() for key, part in state.items()}), a.checkpoint)
if a.out and rank == 0:
    json.dump(dict(torch=torch.__version__, losses=losses), open(a.out, "w"))
dist.destroy_process_group()
