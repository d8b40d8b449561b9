"""Loads the newest checkpoint under a folder into torchvision's resnet50, strictly, and runs it.

usage: load_resnet50.py CHECKPOINTS CLASSES
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file
from torchvision.models import resnet50

newest = sorted(pathlib.Path(sys.argv[1]).glob("step-*"))[-1]
net = resnet50(num_classes=int(sys.argv[2]))
net.load_state_dict(load_file(newest / "model.safetensors"), strict=True)
assert net.bn1.num_batches_tracked.item() == 1
net.eval()
assert torch.isfinite(net(torch.rand(2, 3, 64, 64))).all()
