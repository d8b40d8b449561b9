"""What PyTorch's programs have in common: dtrain's networks, parameter for parameter, and the data set in memory."""
import gzip
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):
    """conv 1->20 k3, pool, conv 20->50 k5, pool, 800->128, 128->10: dtrain's lenet, parameter for parameter."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Residual(nn.Module):
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), convolutions with bias."""

    def __init__(self, cin, cout, project=False, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv3 = nn.Conv2d(cin, cout, 1, stride=stride) if project else None
        self.bn1 = nn.BatchNorm2d(cout)
        self.bn2 = nn.BatchNorm2d(cout)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (self.conv3(x) if self.conv3 is not None else x), inplace=True)


def resnet18():
    """dtrain's resnet18, parameter for parameter."""
    net = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
    for i, (cin, cout) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], 1):
        first = Residual(cin, cout, project=i > 1, stride=1 if i == 1 else 2)
        net.add_module(f"resnet_block{i}", nn.Sequential(first, Residual(cout, cout)))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))
    return net


def read_idx(path):
    raw = gzip.open(path).read()
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


class Images:
    """All images in memory: as float32 in [0, 1] (a batch is one gather) or as bytes (a quarter of the memory)."""

    def __init__(self, folder, storage, memory_format, split="train"):
        images = torch.from_numpy(read_idx(f"{folder}/{split}-images-idx3-ubyte.gz").copy()).unsqueeze(1)
        self.labels = torch.from_numpy(read_idx(f"{folder}/{split}-labels-idx1-ubyte.gz").astype(np.int64))
        self.images = images.float().div_(255) if storage == "float32" else images
        self.memory_format = memory_format

    def __len__(self):
        return len(self.images)

    def batch(self, indices):
        images = self.images[indices]
        if images.dtype == torch.uint8:
            images = images.float().div_(255)
        return images.contiguous(memory_format=self.memory_format), self.labels[indices]
