"""Loads the newest checkpoint under a folder into the PyTorch module of make_golden_resnet.py, strictly.

usage: load_checkpoint.py CHECKPOINTS
"""
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

source = (pathlib.Path(__file__).parent / "make_golden_resnet.py").read_text()
exec(source[source.index("class Residual") : source.index("class Sized")])  # the module alone, without the recording

newest = sorted(pathlib.Path(sys.argv[1]).glob("step-*"))[-1]
state = load_file(newest / "model.safetensors")
net = resnet18()
net.load_state_dict(state, strict=True)
assert state["1.num_batches_tracked"].dtype == torch.int64 and state["1.num_batches_tracked"].item() == 1
net.eval()
assert torch.isfinite(net(torch.rand(2, 1, 28, 28))).all()
