"""Writes golden.json: what PyTorch's DistributedSampler, randperm and pixel scaling give, for data_parity_test.cc.

Run: python3 make_golden.py [--data DIR] > golden.json
DIR holds the Fashion-MNIST .gz files (Debian package dataset-fashion-mnist).
Short lists are kept in full, long ones as the CRC-32 of their little-endian int64 values.
"""
import argparse, gzip, json, struct, zlib
import numpy as np, torch
from torch.utils.data.distributed import DistributedSampler

p = argparse.ArgumentParser()
p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
a = p.parse_args()


class Sized:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n


def brief(values):
    values = [int(v) for v in values]
    case = {"count": len(values), "crc32": zlib.crc32(struct.pack(f"<{len(values)}q", *values))}
    if len(values) <= 16: case["values"] = values
    return case


def sampler(n, world, shuffle, seed, epoch, drop_last):
    ranks = []
    for rank in range(world):
        s = DistributedSampler(Sized(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        s.set_epoch(epoch)
        ranks.append(brief(s))
    return dict(n=n, world=world, shuffle=shuffle, seed=seed, epoch=epoch, drop_last=drop_last, ranks=ranks)


def randperm(n, seed):
    return dict(n=n, seed=seed, **brief(torch.randperm(n, generator=torch.Generator().manual_seed(seed))))


def idx(name):
    raw = gzip.open(f"{a.data}/{name}").read()
    shape = struct.unpack(">" + "I" * raw[3], raw[4 : 4 + 4 * raw[3]])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def batches(split, prefix, count):
    x, y = idx(f"{prefix}-images-idx3-ubyte.gz"), idx(f"{prefix}-labels-idx1-ubyte.gz")
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(3))[:count]
    images = torch.tensor(x)[order].float().div_(255).numpy()
    return dict(split=split, size=len(y), count=count, images_crc32=zlib.crc32(images.astype("<f4").tobytes()),
                labels_crc32=zlib.crc32(y[order.numpy()].astype("<i8").tobytes()))


sampler_cases = [
    (10, 3, True, 0, 0, False), (10, 3, True, 0, 1, False), (11, 4, True, 7, 2, True), (3, 8, True, 0, 0, False),
    (12, 4, False, 0, 0, False), (13, 4, False, 0, 0, True),
    (1, 1, True, 0, 0, False), (1, 9, True, 5, 0, False), (1, 9, True, 5, 0, True), (2, 7, False, 0, 0, False),
    (3, 8, True, 0, 0, True), (5, 64, True, 11, 3, False), (7, 50, False, 0, 0, False), (64, 64, True, 1, 1, True),
    (65, 64, True, 1, 1, True), (65, 64, True, 1, 1, False), (1000, 7, True, 42, 9, False), (1000, 7, True, 42, 9, True),
    (10007, 4, True, 2**32 - 1, 1, False), (10007, 4, True, 2**40 + 17, 5, False), (60000, 2, True, 0, 0, False),
    (60000, 2, True, 0, 9, False), (60000, 3, True, 0, 0, False), (60000, 7, True, 1234, 4, True),
    (60001, 4, True, 3, 2, False), (10000, 3, False, 0, 0, False), (1281167, 8, True, 0, 1, False),
]
randperm_cases = [(0, 0), (1, 0), (2, 0), (2, 1), (10, 0), (10, 1), (1000, 42), (60000, 0), (60000, 2**32 + 5),
                  (60000, 2**63), (1281167, 7)]
pixels = torch.arange(256, dtype=torch.uint8).float().div_(255).numpy()
print(json.dumps({
    "torch": torch.__version__,
    "randperm": [randperm(*c) for c in randperm_cases],
    "sampler": [sampler(*c) for c in sampler_cases],
    "pixels_crc32": zlib.crc32(pixels.astype("<f4").tobytes()),
    "batches": [batches("train", "train", 4096), batches("test", "t10k", 10000)],
}, separators=(",", ":")).replace('{"n"', '\n{"n"').replace('{"split"', '\n{"split"'))
