"""Layers with the weights that PyTorch draws after torch.manual_seed(7)."""
import torch
from make_golden import Case


def layer(kind, *args, **options):
    torch.manual_seed(7)
    return getattr(torch.nn, kind)(*args, **options)


cases = {
    "Conv1d": Case([[1, 3, 6]], layer("Conv1d", 3, 4, 3)),
    "Conv1d stride 2 padding 1 no bias": Case([[1, 4, 6]], layer("Conv1d", 4, 6, 3, stride=2, padding=1, groups=2, bias=False)),
    "Conv3d": Case([[1, 2, 2, 3, 2]], layer("Conv3d", 2, 3, 2, padding=1)),
    "ConvTranspose2d": Case([[1, 3, 3, 2]], layer("ConvTranspose2d", 3, 4, 3)),
    "ConvTranspose2d stride 2 groups 2": Case([[1, 4, 3, 2]], layer("ConvTranspose2d", 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)),
    "Embedding": Case([], lambda i: layer("Embedding", 6, 5, padding_idx=1)(i).detach(), indices=[[0, 1, 5]]),
    "LayerNorm": Case([[4, 2, 3]], layer("LayerNorm", [2, 3])),
    "RMSNorm": Case([[4, 2, 3]], layer("RMSNorm", 3)),
    "SiLU": Case([[7]], layer("SiLU"), low=-4, high=4),
    "LeakyReLU": Case([[7]], layer("LeakyReLU", 0.2)),
    "PReLU": Case([[2, 3, 4]], layer("PReLU", 3)),
    "Softplus": Case([[7]], layer("Softplus", 2.0, 5.0), low=-4, high=4),
    "Softmax": Case([[3, 4]], layer("Softmax", 0)),
    "Sigmoid": Case([[7]], layer("Sigmoid")),
    "Tanh": Case([[7]], layer("Tanh")),
    "GELU": Case([[7]], layer("GELU")),
}
