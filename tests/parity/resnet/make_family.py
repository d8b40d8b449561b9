"""Writes family.json: what torchvision's residual networks are made of, and what they say, seeded by 0.

usage: make_family.py    (with torch and torchvision)
"""
import json, pathlib, zlib

import torch
import torchvision

MODELS = {"resnet18-imagenet": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50", "resnet101": "resnet101"}


@torch.no_grad()
def said_of(network, images):
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    network.train()(images)  # running statistics of a batch
    return network.eval()(images)


def record(ours, theirs):
    torch.manual_seed(0)
    network = getattr(torchvision.models, theirs)(num_classes=7)
    shapes = "".join(f"{name} {list(tensor.shape)}\n" for name, tensor in network.state_dict().items())
    count = 2 * 3 * 64 * 64
    images = (((torch.arange(count) * 7919) % 509 - 250).float() / 128).reshape(2, 3, 64, 64)
    logits = said_of(network, images)
    with torch.no_grad():  # how far PyTorch is from itself where weights round otherwise
        for parameter in network.parameters():
            parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape))
    spread = (said_of(network, images) - logits).abs().max().item()
    return {"model": ours, "parameters": sum(p.numel() for p in network.parameters()), "shapes_crc32": zlib.crc32(shapes.encode()),
            "spread": spread, "logits": logits.flatten().tolist()}


def main():
    cases = [record(*names) for names in MODELS.items()]
    out = {"torch": torch.__version__, "torchvision": torchvision.__version__, "networks": cases}
    (pathlib.Path(__file__).parent / "family.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
