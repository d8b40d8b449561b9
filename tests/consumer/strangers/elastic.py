# In the style of torch's own examples for torchrun: a snapshot that a restarted group resumes from, errors by `record`.
#
#     elastic.py SNAPSHOT [fail: rank 1 fails in epoch 2 of the first attempt | always: of each]
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, snapshot):
        self.rank = int(os.environ["RANK"])
        self.snapshot, self.epoch = snapshot, 0
        torch.manual_seed(0)
        inputs = torch.randn(256, 10)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        self.data = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
        self.model = torch.nn.Linear(10, 1)
        if os.path.exists(snapshot):
            state = torch.load(snapshot)
            self.model.load_state_dict(state["model"])
            self.epoch = state["epoch"]
            print(f"rank {self.rank} resumes from epoch {self.epoch}")
        self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run_epoch(self):
        self.data.sampler.set_epoch(self.epoch)
        for x, y in self.data:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()
        self.epoch += 1
        if self.rank == 0:
            torch.save({"model": self.model.module.state_dict(), "epoch": self.epoch}, self.snapshot + ".new")
            os.replace(self.snapshot + ".new", self.snapshot)


@record
def main():
    dist.init_process_group("gloo")
    trainer = Trainer(sys.argv[1])
    mode = sys.argv[2] if len(sys.argv) > 2 else ""
    while trainer.epoch < 4:
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if trainer.epoch == 2 and trainer.rank == 1 and (mode == "always" or (mode == "fail" and first)):
            raise ValueError("the loss is not finite")
        trainer.run_epoch()
        dist.barrier()
    print(f"rank {trainer.rank}: elastic, {dist.get_world_size()} processes, epoch {trainer.epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
