"""Writes networks.json: what timm's and torchvision's networks are made of, and what they say with weights that a formula
gives (weight_values), so that nothing depends on how they are drawn.

usage: make_networks.py    (with torch, torchvision and timm)
"""
import json, pathlib, zlib

import numpy
import timm
import torch
import torchvision

# By our names: how to make theirs for images of a size, and that size.
NETWORKS = {
    "inception-resnet-v2": (lambda classes, size: timm.create_model("inception_resnet_v2", num_classes=classes), 139),
    "vit-small": (lambda classes, size: timm.create_model("vit_small_patch16_224", num_classes=classes, img_size=size), 64),
    "vit-base": (lambda classes, size: timm.create_model("vit_base_patch16_224", num_classes=classes, img_size=size), 64),
    "convnext-tiny": (lambda classes, size: torchvision.models.convnext_tiny(num_classes=classes), 64),
}
CLASSES = 7


def weight_values(name, shape):
    """Float32 numbers between two bounds, by the tensor's name and each element's place."""
    places = numpy.arange(int(numpy.prod(shape, dtype=numpy.int64)), dtype=numpy.int64)
    unit = ((places * 7919 + (zlib.crc32(name.encode()) & 0xFFFF) * 31) % 509 - 254) / 254.0
    if name.endswith("layer_scale"):
        values = 0.5 + 0.5 * unit
    elif len(shape) in (2, 4):
        values = unit * numpy.sqrt(3.0 / numpy.prod(shape[1:], dtype=numpy.float64))
    elif name.endswith("running_var") or name.endswith(".weight"):
        values = 1 + 0.25 * unit
    else:
        values = 0.1 * unit
    return values.astype(numpy.float32).reshape(shape)


def fill(network):
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.from_numpy(weight_values(name, tuple(tensor.shape))))


@torch.no_grad()
def said_of(network, images):
    """In evaluation, with running statistics that one batch has moved."""
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in network.modules()):
        network.train()(images)
    return network.eval()(images)


@torch.no_grad()
def record(ours):
    make, size = NETWORKS[ours]
    count = 2 * 3 * size * size
    images = (((torch.arange(count) * 7919) % 509 - 250).float() / 128).reshape(2, 3, size, size)
    network = make(CLASSES, size)
    fill(network)
    logits = said_of(network, images)
    shapes = "".join(f"{name} {list(tensor.shape)}\n" for name, tensor in network.state_dict().items())
    fill(network)
    torch.manual_seed(0)
    for parameter in network.parameters():  # how far PyTorch is from itself where weights round otherwise
        parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape))
    spread = (said_of(network, images) - logits).abs().max().item()
    whole = make(1000, 224)
    return {"model": ours, "size": size, "parameters": sum(p.numel() for p in whole.parameters()), "shapes_crc32": zlib.crc32(shapes.encode()),
            "spread": spread, "logits": logits.flatten().tolist()}


def main():
    cases = [record(name) for name in NETWORKS]
    out = {"torch": torch.__version__, "torchvision": torchvision.__version__, "timm": timm.__version__, "networks": cases}
    (pathlib.Path(__file__).parent / "networks.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
