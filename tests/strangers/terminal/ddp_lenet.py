"""LeNet on Fashion-MNIST as PyTorch's tutorials on DDP and on classifiers print it, for terminals.py.

usage: torchrun --nproc_per_node=N ddp_lenet.py EPOCHS
"""
import sys

import torch
import torch.distributed as dist
from lenet import data, lenet
from torch.utils.data import DataLoader, DistributedSampler


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    sampler = DistributedSampler(data(True))
    train, test = DataLoader(data(True), batch_size=128, sampler=sampler), DataLoader(data(False), batch_size=256)
    for epoch in range(int(sys.argv[1])):
        print(f"Epoch {epoch + 1}\n-------------------------------")
        sampler.set_epoch(epoch)
        for number, (image, label) in enumerate(train):
            loss = torch.nn.functional.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % 20 == 0:
                print(f"loss: {loss.item():>7f}  [{number * len(image):>5d}/{len(sampler):>5d}]")
        with torch.no_grad():
            right = sum((model(image).argmax(1) == label).sum().item() for image, label in test)
        print(f"Test Error: \n Accuracy: {right / len(data(False)):>0.1%}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
