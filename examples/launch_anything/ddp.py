# A PyTorch script, unchanged from what torchrun starts: data parallelism over whatever workers there are.
#
#     dtrain-launch --nproc_per_node=2 examples/launch_anything/ddp.py
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(20):
    x = torch.randn(32, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
total = sum(parameter.double().sum() for parameter in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}, weights {total.item():.12f}")
dist.destroy_process_group()
