"""Golden cases of core_test.cc: the operations of classic networks."""
import torch, torch.nn.functional as F
from make_golden import Case

target = [2, 0, 3]
cases = {
    "conv2d": Case([[2, 3, 6, 5], [4, 3, 3, 3], [4]], F.conv2d),
    "conv2d stride 2 padding 1": Case([[1, 3, 6, 6], [4, 3, 3, 3], [4]], lambda x, w, b: F.conv2d(x, w, b, 2, 1)),
    "conv2d dilation 2 groups 2": Case([[1, 4, 6, 6], [4, 2, 2, 2], [4]], lambda x, w, b: F.conv2d(x, w, b, dilation=2, groups=2)),
    "conv2d relu": Case([[2, 2, 5, 5], [3, 2, 3, 3], [3]], lambda x, w, b: F.relu(F.conv2d(x, w, b))),
    "conv2d relu max_pool2d": Case([[2, 2, 6, 6], [3, 2, 3, 3], [3]], lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2)),
    "max_pool2d 3 stride 2 padding 1": Case([[1, 2, 6, 6]], lambda x: F.max_pool2d(x, 3, 2, 1)),
    "avg_pool2d 3 stride 2 padding 1": Case([[1, 2, 6, 6]], lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "linear": Case([[3, 7], [5, 7], [5]], F.linear),
    "linear relu": Case([[2, 3, 7], [5, 7], [5]], lambda x, w, b: F.relu(F.linear(x, w, b))),
    "matmul broadcast": Case([[2, 1, 3, 4], [2, 4, 2]], torch.matmul),
    "gelu": Case([[20]], F.gelu),
    "sigmoid": Case([[20]], torch.sigmoid),
    "tanh": Case([[20]], torch.tanh),
    "div broadcast": Case([[3, 4], [4]], lambda x, y: x / (y + 3)),
    "log_softmax": Case([[3, 5]], lambda x: F.log_softmax(x, -1)),
    "softmax": Case([[3, 5]], lambda x: F.softmax(x, -1)),
    "cross_entropy": Case([[3, 5]], F.cross_entropy, indices=[target]),
    "mse_loss": Case([[3, 5], [3, 5]], F.mse_loss),
    "mean and amax": Case([[3, 4, 2]], lambda x: x.mean((0, 2)) * x.amax(0).sum(-1)),
    "index_select": Case([[5, 3]], lambda x, i: x.index_select(0, i), indices=[target]),
}
