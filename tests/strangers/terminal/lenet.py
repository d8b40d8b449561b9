"""The network and the samples of the programs that terminals.py looks at: 12,000 pictures, so that an epoch is short."""
import functools
import gzip
import os
import pathlib

import torch

FOLDER = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
SAMPLES = 12_000


def read(name, header):
    return torch.frombuffer(bytearray(gzip.decompress((FOLDER / name).read_bytes())[header:]), dtype=torch.uint8)


@functools.cache
def data(train):
    """Samples (image [1, 28, 28], label)."""
    prefix = "train" if train else "t10k"
    count = SAMPLES if train else SAMPLES // 6
    images = read(f"{prefix}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)[:count].float() / 255
    labels = read(f"{prefix}-labels-idx1-ubyte.gz", 8)[:count].long()
    return torch.utils.data.TensorDataset(images, labels)


def lenet():
    n = torch.nn
    return n.Sequential(n.Conv2d(1, 20, 3), n.ReLU(), n.AvgPool2d(2), n.Conv2d(20, 50, 5), n.ReLU(), n.AvgPool2d(2),
                        n.Flatten(), n.Linear(800, 128), n.ReLU(), n.Linear(128, 10))
