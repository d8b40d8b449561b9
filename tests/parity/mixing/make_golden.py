"""Writes golden.json: batches mixed by torchvision's MixUp and CutMix, and PyTorch's loss with their targets.

usage: make_golden.py    (with torch and torchvision)
"""
import itertools, json, pathlib, zlib

import torch
import torchvision
from torchvision.transforms import v2

BATCH, CHANNELS, HEIGHT, WIDTH, CLASSES = 5, 3, 12, 17, 7
LABELS = torch.tensor([3, 0, 6, 3, 1])


def numbers(shape, factor):
    """What the test makes too: multiples of 1/64."""
    count = torch.tensor(shape).prod().item()
    return (((torch.arange(count) * factor) % 509 - 250).float() / 64).reshape(shape)


class Fixed:
    """What a distribution draws."""
    def __init__(self, value):
        self.value = torch.tensor(value, dtype=torch.float64)

    def sample(self, shape):
        return self.value


def fix_draws(transform, share, places):
    transform._dist = Fixed(share)
    left = iter(places)
    torch.randint = lambda n, size=(1,): torch.tensor([next(left)])


def record(kind, share, x, y, smoothing):
    images, logits = numbers((BATCH, CHANNELS, HEIGHT, WIDTH), 7919), numbers((BATCH, CLASSES), 311)
    transform = (v2.MixUp if kind == "mixup" else v2.CutMix)(num_classes=CLASSES)
    draw = torch.randint
    fix_draws(transform, share, [x, y])
    mixed, targets = transform(images, LABELS)
    torch.randint = draw
    logits.requires_grad_()
    loss = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, targets)
    loss.backward()
    return {"kind": kind, "share": share, "x": x, "y": y, "smoothing": smoothing,
            "crc32": zlib.crc32(mixed.contiguous().numpy().tobytes()), "loss": loss.item(),
            "gradient": logits.grad.flatten().tolist()}


def plain(smoothing):
    logits = numbers((BATCH, CLASSES), 311).requires_grad_()
    loss = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, LABELS)
    loss.backward()
    return {"kind": "none", "smoothing": smoothing, "loss": loss.item(), "gradient": logits.grad.flatten().tolist()}


def main():
    cases = [plain(0.1), plain(0.0)]
    cases += [record("mixup", share, 0, 0, smoothing) for share, smoothing in ((0.3, 0.1), (1 / 3, 0.0), (0.9371, 0.0))]
    places = itertools.cycle(((0, 0), (16, 11), (8, 6), (3, 10)))
    cases += [record("cutmix", share, *place, smoothing)
              for share, smoothing, place in zip((0.2, 0.5, 0.77, 0.999, 1e-6), (0.1, 0.0, 0.1, 0.0, 0.0), places)]
    out = {"torch": torch.__version__, "torchvision": torchvision.__version__, "cases": cases}
    (pathlib.Path(__file__).parent / "golden.json").write_text(json.dumps(out, indent=0) + "\n")


main()
