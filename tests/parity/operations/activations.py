"""Golden cases of activations_test.cc."""
import torch, torch.nn.functional as F
from make_golden import Case

cases = {
    "leaky_relu 0.2": Case([[20]], lambda x: F.leaky_relu(x, 0.2)),
    "prelu channels": Case([[2, 3, 4], [3]], F.prelu),
    "prelu one weight": Case([[2, 3], [1]], F.prelu),
    "silu": Case([[20]], F.silu, low=-6, high=6),
    "softplus": Case([[20]], F.softplus, low=-6, high=6),
    "softplus beta 3 threshold 6": Case([[20]], lambda x: F.softplus(x, 3, 6), low=-4, high=4),
    "clamp": Case([[20]], lambda x: x.clamp(-0.5, 0.25)),
    "clamp min": Case([[20]], lambda x: x.clamp(min=0.1)),
    "pow of tensors": Case([[3, 4], [4]], torch.pow, low=0.2, high=3),
    "softmax dim 1": Case([[2, 4, 3]], lambda x: F.softmax(x, 1)),
    "log_softmax dim 0": Case([[4, 3]], lambda x: F.log_softmax(x, 0)),
    "argmax dim 1": Case([[2, 4, 3]], lambda x: x.argmax(1)),
    "argmax dim 0 keep": Case([[4, 3]], lambda x: x.argmax(0, keepdim=True)),
    "cross_entropy ignore_index": Case([[4, 5]], lambda x, t: F.cross_entropy(x, t, ignore_index=-100), indices=[[2, -100, 0, 3]]),
    "cross_entropy ignore_index sum": Case([[4, 5]], lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="sum"), indices=[[2, 1, 0, 3]]),
    "cross_entropy ignore_index none": Case([[4, 5]], lambda x, t: F.cross_entropy(x, t, ignore_index=-1, reduction="none"), indices=[[2, -1, 0, 3]]),
    "gelu_tanh": Case([[20]], lambda x: F.gelu(x, approximate="tanh"), low=-6, high=6),
}
