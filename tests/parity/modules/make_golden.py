"""Writes golden.safetensors: what PyTorch's modules look like when printed, are called in state_dict() and start with, and what
their parameters' gradients are.

Run: python3 make_golden.py [--out FILE]     with torch
Modules are made after torch.manual_seed(7); gradients are of a weighted sum of squares of the results, of inputs that are
torch.empty(shape).uniform_(-1, 1) after torch.manual_seed(11), 12, … in the order of the arguments. Weights are of seed 10: behind a
norm a plain sum of squares would have no gradient.
"""
import argparse, pathlib, sys
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import golden

p = argparse.ArgumentParser()
p.add_argument("--out", default=pathlib.Path(__file__).parent / "golden.safetensors")
a = p.parse_args()
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3)
        self.body = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)] + [nn.Tanh()])
        self.fc = nn.Linear(784, 10, bias=False)


PRINTED = {
    "Net": Net(),
    "Conv1d": nn.Conv1d(2, 4, 3, padding=1),
    "Conv2d": nn.Conv2d(4, 8, (3, 5), stride=2, padding=(1, 2), dilation=2, groups=2, bias=False),
    "Conv3d": nn.Conv3d(2, 2, 3),
    "ConvTranspose1d": nn.ConvTranspose1d(2, 4, 3, stride=2),
    "ConvTranspose2d": nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1),
    "ConvTranspose3d": nn.ConvTranspose3d(4, 2, (3, 2, 2), stride=2, padding=1, output_padding=1, groups=2),
    "MaxPool1d dilated": nn.MaxPool1d(2, dilation=3), "MaxPool2d dilated": nn.MaxPool2d(3, 1, 1, (2, 1)),
    "MaxPool3d dilated": nn.MaxPool3d((1, 2, 2), dilation=2), "Upsample bicubic": nn.Upsample(scale_factor=2, mode="bicubic"),
    "BatchNorm1d": nn.BatchNorm1d(3), "BatchNorm3d": nn.BatchNorm3d(3, 1e-3, 0.01),
    "GroupNorm": nn.GroupNorm(2, 4), "GroupNorm plain": nn.GroupNorm(2, 4, affine=False),
    "InstanceNorm2d": nn.InstanceNorm2d(4), "LayerNorm": nn.LayerNorm((2, 3), 1e-6, bias=False),
    "MaxPool2d": nn.MaxPool2d((3, 2), 2, 1), "AvgPool2d": nn.AvgPool2d(2), "MaxPool1d": nn.MaxPool1d(2),
    "AvgPool1d": nn.AvgPool1d(3, 2, 1), "MaxPool3d": nn.MaxPool3d(2), "AvgPool3d": nn.AvgPool3d(2),
    "AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d(3), "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d((1, 2)),
    "Identity": nn.Identity(), "GELU": nn.GELU(), "LeakyReLU": nn.LeakyReLU(0.2), "PReLU": nn.PReLU(3),
    "Softplus": nn.Softplus(), "Softmax": nn.Softmax(1), "Flatten": nn.Flatten(), "Dropout": nn.Dropout(0.25),
    "Dropout2d": nn.Dropout2d(0.1), "Embedding": nn.Embedding(10, 3, padding_idx=0),
    "LSTM": nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), "GRU": nn.GRU(3, 4),
    "Upsample": nn.Upsample(scale_factor=2, mode="bilinear"), "Upsample size": nn.Upsample((3, 4)),
    "ZeroPad2d": nn.ZeroPad2d(1), "ConstantPad2d": nn.ConstantPad2d((1, 2, 0, 1), 0.5),
    "ReflectionPad1d": nn.ReflectionPad1d(1), "ReplicationPad2d": nn.ReplicationPad2d((1, 0, 2, 3)),
    "Sequential": nn.Sequential(),
}


def inputs(*shapes):
    drawn = []
    for i, shape in enumerate(shapes):
        torch.manual_seed(11 + i)
        drawn.append(torch.empty(shape).uniform_(-1, 1))
    return drawn


def learned(make, *shapes):
    torch.manual_seed(7)
    module = make()
    start = [[name, list(tensor.shape), tensor.detach().flatten().tolist()] for name, tensor in module.state_dict().items()]
    y = module(*inputs(*shapes))
    y = y[0] if isinstance(y, tuple) else y
    torch.manual_seed(10)
    (y.square() * torch.empty(y.shape).uniform_(0, 1)).sum().backward()
    gradients = {name: parameter.grad.flatten().tolist() for name, parameter in module.named_parameters()}
    return dict(start=start, y=y.detach().flatten().tolist(), gradients=gradients)


LEARNED = {
    "MultiheadAttention": learned(lambda: nn.MultiheadAttention(8, 2), (5, 3, 8), (6, 3, 8), (6, 3, 8)),
    "MultiheadAttention widths": learned(lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=3, batch_first=True),
                                         (3, 5, 8), (3, 4, 6), (3, 4, 3)),
    "TransformerEncoderLayer": learned(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0), (5, 3, 8)),
    "TransformerDecoderLayer": learned(lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", norm_first=True),
                                       (5, 3, 8), (4, 3, 8)),
    "ConvTranspose1d": learned(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (2, 4, 5)),
    "Conv3d": learned(lambda: nn.Conv3d(2, 3, (1, 3, 2), bias=False), (2, 2, 3, 4, 3)),
    "BatchNorm1d": learned(lambda: nn.BatchNorm1d(4), (5, 4)),
    "BatchNorm3d": learned(lambda: nn.BatchNorm3d(3), (2, 3, 2, 3, 2)),
    "GroupNorm": learned(lambda: nn.GroupNorm(2, 6), (2, 6, 4)),
    "InstanceNorm2d": learned(lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 3)),
}


def initial(shape, fill):
    torch.manual_seed(3)
    tensor = torch.empty(shape)
    fill(tensor)
    return tensor.flatten().tolist()


SHAPE = (6, 3, 3, 2)
INITIAL = {
    "uniform": initial(SHAPE, lambda t: nn.init.uniform_(t, -2, 0.5)),
    "normal": initial(SHAPE, lambda t: nn.init.normal_(t, 1, 0.2)),
    "xavier_uniform": initial(SHAPE, lambda t: nn.init.xavier_uniform_(t, 1.5)),
    "xavier_normal": initial(SHAPE, nn.init.xavier_normal_),
    "kaiming_uniform": initial(SHAPE, lambda t: nn.init.kaiming_uniform_(t, 0.3)),
    "kaiming_normal": initial(SHAPE, lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu")),
}


def applied():
    """Two linear layers in a sequence in a sequence, each drawn anew by apply()."""
    net = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.Linear(5, 4)))
    torch.manual_seed(3)
    net.apply(lambda m: nn.init.xavier_uniform_(m.weight) if isinstance(m, nn.Linear) else None)
    return torch.cat([net[0].weight.flatten(), net[1][0].weight.flatten()]).tolist()


golden.save(a.out, {"torch": torch.__version__, "printed": {name: repr(module) for name, module in PRINTED.items()},
                    "learned": LEARNED, "initial": INITIAL, "applied": applied()})
print(len(PRINTED), "printed,", len(LEARNED), "learned")
