"""examples/detector in PyTorch: the same weights, samples and steps, under DDP, resumed from its last checkpoint.

Run: python detector.py [--epochs N] [--out FILE]; or torchrun --nproc_per_node=2 detector.py. --out writes each step's
loss.
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
for name, value in dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29536").items():
    os.environ.setdefault(name, value)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def rectangles(size):
    pictures, objects = torch.zeros(size, 1, 16, 16), torch.zeros(size, 4, 4)
    boxes, labels = torch.zeros(size, 4, 4, 4), torch.full((size, 4, 4), -100)
    for i in range(size):
        for k in range(1 + i % 2):
            w, h, kind = 3 + (i + k) % 4, 3 + i // 4 % 4, (i // 2 + k) % 3
            x, y = (5 * i + 9 * k) % (17 - w), (3 * i + 6 * k) % (17 - h)
            pictures[i, 0, y:y + h, x:x + w] = 0.5 * (kind + 1)
            row, column = (y + h // 2) // 4, (x + w // 2) // 4
            objects[i, row, column] = 1
            boxes[i, :, row, column] = torch.tensor([x, y, w, h]) / 16
            labels[i, row, column] = kind
    return TensorDataset(pictures, objects, boxes, labels)


def sums_of(maps, objects, boxes, labels):
    return (F.binary_cross_entropy_with_logits(maps[:, 0], objects, reduction="sum"),
            F.smooth_l1_loss(maps[:, 1:5] * objects[:, None], boxes, reduction="sum"),
            F.cross_entropy(maps[:, 5:8], labels, reduction="sum"))


torch.manual_seed(a.seed)
network = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                        nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 8, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.003, weight_decay=0.01)
data = rectangles(640)
sampler = DistributedSampler(data, seed=a.seed)
loader = DataLoader(data, batch_size=a.global_batch_size // world, sampler=sampler)
state = dict(network=network, optimizer=optimizer)
first = 0
if a.checkpoint and os.path.exists(a.checkpoint):
    saved = torch.load(a.checkpoint)
    first = saved["epoch"]
    for key, part in state.items():
        part.load_state_dict(saved[key])
losses = []
for epoch in range(first, a.epochs):
    sampler.set_epoch(epoch)
    for pictures, objects, boxes, labels in loader:
        optimizer.zero_grad()
        count = objects.sum()
        dist.all_reduce(count)  # as in DETR: the mean is over the objects of all workers
        of_object, of_box, of_class = sums_of(model(pictures), objects, boxes, labels)
        loss = (of_object + 5 * of_box + of_class) / (count / world)
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
