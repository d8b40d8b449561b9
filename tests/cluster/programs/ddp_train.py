# A plain PyTorch DDP script as a user has it: nothing in it knows what started it. Prints the losses of rank 0 in full.
import datetime
import os
import sys
import time

if os.environ.get("FIRST_LINE_FILE"):
    with open(os.environ["FIRST_LINE_FILE"] + os.environ["RANK"], "w") as file:
        file.write(str(time.time()))
    if os.environ.get("FIRST_LINE_ONLY"):
        sys.exit(0)

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    assert int(os.environ["LOCAL_RANK"]) < int(os.environ["LOCAL_WORLD_SIZE"])
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(256, 20, generator=generator)
    labels = torch.randint(0, 5, (256,), generator=generator)
    for step in range(10):
        mine = torch.arange(step * 24 + rank, step * 24 + 24, world)
        loss = torch.nn.functional.cross_entropy(model(inputs[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {(total / world).item():.17g}", flush=True)
        if "--fail" in sys.argv and step == 5:
            if rank == world - 1:
                raise ValueError("the data of step 5 cannot be used")
            time.sleep(30)  # the others do not come to notice before the launcher ends them
    dist.barrier()
    dist.destroy_process_group()


main()
# PyTorch's threads now and then abort the interpreter on its way out, under any launcher.
sys.stdout.flush()
os._exit(0)
