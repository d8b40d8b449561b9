"""Two ResNets as PyTorch programs have them, for pytorch_test.sh.

  make   writes NAME.safetensors, what NAME makes of x.npy, and names of ResNet-18's tensors here and there
  check  dtrain's predictions are PyTorch's; what dtrain wrote is loaded strictly, and has the same values
"""
import json
import struct
import sys

import numpy
import torch
from torch import nn

LIMIT = 1e-5
TYPES = {torch.float32: "F32", torch.int64: "I64"}


class Bottleneck(nn.Module):
    """torchvision.models.resnet.Bottleneck, with its names."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet50(nn.Module):
    """torchvision.models.resnet50, with its names."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3))):
            layer = []
            for block in range(blocks):
                layer.append(Bottleneck(inputs, width, 2 if i > 0 and block == 0 else 1))
                inputs = 4 * width
            setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        y = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.fc(y.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, project):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if project else nn.Identity()
        self.norm1 = nn.BatchNorm2d(outputs)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return (self.norm2(self.conv2(self.norm1(self.conv1(x)).relu())) + self.shortcut(x)).relu()


class ResNet18(nn.Module):
    """For small images, under names that are nobody else's."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.stages = nn.ModuleList()
        inputs = 64
        for i, outputs in enumerate((64, 128, 256, 512)):
            first = Block(inputs, outputs, 1 if i == 0 else 2, i > 0)
            self.stages.append(nn.Sequential(first, Block(outputs, outputs, 1, False)))
            inputs = outputs
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        y = self.stem(x)
        for stage in self.stages:
            y = stage(y)
        return self.head(y.mean((2, 3)))


def names_of_resnet18():
    lines = ["# ours = theirs", "0.* = stem.0.*", "1.* = stem.1.*", "fc.1.* = head.*"]
    for i in range(4):
        for j in range(2):
            ours, theirs = f"resnet_block{i + 1}.{j}", f"stages.{i}.{j}"
            lines.append(f"{ours}.* = {theirs}.*")
            lines += [f"{ours}.bn{k}.* = {theirs}.norm{k}.*" for k in (1, 2)]
            if i > 0 and j == 0:
                lines.append(f"{ours}.conv3.* = {theirs}.shortcut.*")
    return "\n".join(lines) + "\n"


def save(path, state):
    header, values = {}, b""
    for name, tensor in state.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(values), len(values) + len(data)],
        }
        values += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + values)


def load(path):
    types = {name: dtype for dtype, name in TYPES.items()}
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, values = json.loads(file.read(length)), file.read()
    assert header.pop("__metadata__")["format"] == "pt"
    state = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(values[begin:end]), dtype=types[entry["dtype"]])
        state[name] = flat.reshape(entry["shape"])
    return state


def networks():
    torch.manual_seed(5)
    for name, network in (("resnet18", ResNet18()), ("resnet50", ResNet50())):
        with torch.no_grad():
            network(torch.rand(16, 3, 32, 32))  # in training: running statistics that are not 0 and 1
        yield name, network.eval()


def make():
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(6))
    numpy.save("x.npy", x.numpy())
    with open("resnet18.names", "w") as file:
        file.write(names_of_resnet18())
    for name, network in networks():
        save(f"{name}.safetensors", network.state_dict())
        with torch.no_grad():
            numpy.save(f"{name}.torch.npy", network(x).numpy())


def check():
    for name, network in networks():
        here, there = numpy.load(f"{name}.here.npy"), numpy.load(f"{name}.torch.npy")
        error = float(abs(here - there).max() / abs(there).max())
        state = load(f"{name}.back.safetensors")
        for key, tensor in network.state_dict().items():
            assert torch.equal(state[key], tensor), f"{name}: {key} came back with other values"
        network.load_state_dict(state, strict=True)
        print(f"{name}: {error:.2e} relative to PyTorch's outputs; {len(state)} tensors came back as they were")
        assert error <= LIMIT, f"{name}: expected outputs within {LIMIT}, got {error}"


{"make": make, "check": check}[sys.argv[1]]()
