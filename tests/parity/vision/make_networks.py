"""Writes networks.json: what timm's and torchvision's networks are made of, and what they say with weights that a formula
gives (weight_values), so that nothing depends on how they are drawn; and clips.json: the losses of r3d_18's training.

usage: make_networks.py    (with torch, torchvision and timm; a few minutes)
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
    "r3d-18": (lambda classes, size: torchvision.models.video.r3d_18(num_classes=classes), 48),
    "fcn-resnet50": (lambda classes, size: torchvision.models.segmentation.fcn_resnet50(
        weights=None, weights_backbone=None, num_classes=classes, aux_loss=False), 48),
}
CLASSES = 7
FRAMES = {"r3d-18": 10}  # of a clip, where they are fed clips
TRAINED = {"clips": 4, "frames": 8, "size": 32, "steps": 20, "lr": 0.0001, "momentum": 0.9}


def weight_values(name, shape):
    """Float32 numbers between two bounds, by the tensor's name and each element's place."""
    places = numpy.arange(int(numpy.prod(shape, dtype=numpy.int64)), dtype=numpy.int64)
    unit = ((places * 7919 + (zlib.crc32(name.encode()) & 0xFFFF) * 31) % 509 - 254) / 254.0
    if name.endswith("layer_scale"):
        values = 0.5 + 0.5 * unit
    elif len(shape) in (2, 4, 5):
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


def fed(count, first=0):
    """Numbers from -2 to 2."""
    return ((((torch.arange(count) + first) * 7919) % 509 - 250).float() / 128)


def images_for(ours, size):
    """As torchvision's networks take them: of clips, frames behind channels."""
    if ours not in FRAMES:
        return fed(2 * 3 * size * size).reshape(2, 3, size, size)
    return fed(2 * FRAMES[ours] * 3 * size * size).reshape(2, FRAMES[ours], 3, size, size).transpose(1, 2)


@torch.no_grad()
def said_of(network, images):
    """In evaluation, with running statistics that one batch has moved."""
    if any(isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)) for module in network.modules()):
        network.train()(images)
    said = network.eval()(images)
    return said["out"] if isinstance(said, dict) else said


@torch.no_grad()
def record(ours):
    make, size = NETWORKS[ours]
    images = images_for(ours, size)
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
    every = 41 if logits.dim() > 2 else 1  # of the logits of pixels, some
    return {"model": ours, "size": size, "frames": FRAMES.get(ours, 0), "every": every, "parameters": sum(p.numel() for p in whole.parameters()), "shapes_crc32": zlib.crc32(shapes.encode()),
            "spread": spread, "logits": logits.flatten()[::every].tolist()}


def record_seeded(ours):
    """From the initial weights of seed 0 to the logits."""
    make, size = NETWORKS[ours]
    torch.manual_seed(0)
    network = make(CLASSES, size)
    images = images_for(ours, size)
    every = 41 if ours.startswith("fcn") else 1
    logits = said_of(network, images)
    for module in network.modules():
        if hasattr(module, "reset_running_stats"):
            module.reset_running_stats()
    with torch.no_grad():
        for parameter in network.parameters():  # our normal numbers round otherwise
            parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape))
    spread = (said_of(network, images) - logits).abs().max().item()
    return {"model": ours, "size": size, "frames": FRAMES.get(ours, 0), "every": every, "spread": spread,
            "logits": logits.flatten()[::every].tolist()}


def mixed(count, first):
    """Float32 numbers that look uniform in [-1, 1): splitmix64 of the places from `first` on."""
    with numpy.errstate(over="ignore"):
        z = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(first)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return torch.from_numpy(((z >> numpy.uint64(40)).astype(numpy.float64) / 2**23 - 1).astype(numpy.float32))


@torch.no_grad()
def fill_to_learn(network):
    """Weights as large as He et al.'s; norms stay 1 and 0."""
    for name, tensor in network.named_parameters():
        if tensor.dim() in (2, 5):
            reach = numpy.float32(numpy.sqrt(6.0 / numpy.prod(tensor.shape[1:], dtype=numpy.float64)))
            tensor.copy_(mixed(tensor.numel(), zlib.crc32(name.encode())).reshape(tensor.shape) * reach)
        elif name == "fc.bias":
            tensor.zero_()


def trained(dtype):
    """The loss of each step of r3d_18, of clips that a formula gives."""
    clips, frames, size = TRAINED["clips"], TRAINED["frames"], TRAINED["size"]
    network = NETWORKS["r3d-18"][0](CLASSES, size)
    fill_to_learn(network)
    network.to(dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=TRAINED["lr"], momentum=TRAINED["momentum"])
    losses, count = [], clips * frames * 3 * size * size
    for step in range(TRAINED["steps"]):
        x = (2 * mixed(count, step * 1000003)).reshape(clips, frames, 3, size, size).transpose(1, 2).to(dtype)
        loss = torch.nn.functional.cross_entropy(network(x), (torch.arange(clips) * 3 + step) % CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def record_training():
    single, exact = trained(torch.float32), trained(torch.float64)
    print("float32 from float64, step by step:", " ".join(f"{abs(a - b):.1e}" for a, b in zip(single, exact)))
    return {**TRAINED, "classes": CLASSES, "float32": single, "float64": exact}


def main():
    cases = [record(name) for name in NETWORKS]
    seeded = [record_seeded(name) for name in ("r3d-18", "fcn-resnet50")]
    out = {"torch": torch.__version__, "torchvision": torchvision.__version__, "timm": timm.__version__, "networks": cases, "seeded": seeded}
    (pathlib.Path(__file__).parent / "networks.json").write_text(json.dumps(out, indent=0) + "\n")
    (pathlib.Path(__file__).parent / "clips.json").write_text(json.dumps(record_training(), indent=0) + "\n")


if __name__ == "__main__":
    main()
