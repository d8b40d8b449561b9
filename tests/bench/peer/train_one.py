"""One run of a sweep in PyTorch: LeNet on Fashion-MNIST in one process of one thread, written to be fast. The same work
as one run of `dtrain sweep`: the same steps on the same batches, one evaluation, the weights saved at the end."""
import argparse
import json
import os

import torch
import torch.nn.functional as F

from parts import Images, LeNet


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data-dir", required=True)
    p.add_argument("--batch-size", type=int, required=True)
    p.add_argument("--max-steps", type=int, required=True)
    p.add_argument("--lr", type=float, required=True)
    p.add_argument("--momentum", type=float, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--run-dir", required=True)
    return p.parse_args()


def train(a, net, data):
    optimizer = torch.optim.SGD(net.parameters(), a.lr, momentum=a.momentum)
    step, epoch = 0, 0
    while True:
        generator = torch.Generator()
        generator.manual_seed(a.seed + epoch)
        order = torch.randperm(len(data), generator=generator)
        for begin in range(0, len(order), a.batch_size):
            images, labels = data.batch(order[begin : begin + a.batch_size])
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == a.max_steps:
                return loss.item()
        epoch += 1


def accuracy(a, net, data):
    right = 0
    with torch.no_grad():
        for begin in range(0, len(data), a.batch_size):
            indices = torch.arange(begin, min(begin + a.batch_size, len(data)))
            images, labels = data.batch(indices)
            right += (net(images).argmax(1) == labels).sum().item()
    return right / len(data)


def main():
    a = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    net = LeNet()
    loss = train(a, net, Images(a.data_dir, "float32", torch.contiguous_format))
    found = accuracy(a, net, Images(a.data_dir, "float32", torch.contiguous_format, "t10k"))
    os.makedirs(a.run_dir, exist_ok=True)
    torch.save(net.state_dict(), f"{a.run_dir}/model.pt")
    with open(f"{a.run_dir}/summary.json", "w") as f:
        json.dump({"status": "finished", "steps": a.max_steps, "loss": loss, "test": {"accuracy": found}}, f)


if __name__ == "__main__":
    main()
