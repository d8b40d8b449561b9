"""Writes golden_ops.json: outputs and gradients of single operations as PyTorch computes them in fp32.

Run: python3 make_ops_golden.py [--out FILE]
Inputs are not stored: input i of a case is torch.empty(shape).uniform_(-1, 1) after torch.manual_seed(seed + i), the
loss is sum(output * w), w drawn the same way with the next seed. ops_test.cc holds the same table of operations.
"""
import argparse, json
import torch, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--out", default="golden_ops.json")
a = p.parse_args()
torch.set_num_threads(1)
target = torch.tensor([2, 0, 3])

cases = {
    "conv2d": ([[2, 3, 6, 5], [4, 3, 3, 3], [4]], lambda x, w, b: F.conv2d(x, w, b)),
    "conv2d stride 2 padding 1": ([[1, 3, 6, 6], [4, 3, 3, 3], [4]], lambda x, w, b: F.conv2d(x, w, b, 2, 1)),
    "conv2d dilation 2 groups 2": ([[1, 4, 6, 6], [4, 2, 2, 2], [4]], lambda x, w, b: F.conv2d(x, w, b, dilation=2, groups=2)),
    "conv2d relu": ([[2, 2, 5, 5], [3, 2, 3, 3], [3]], lambda x, w, b: F.relu(F.conv2d(x, w, b))),
    "conv2d relu max_pool2d": ([[2, 2, 6, 6], [3, 2, 3, 3], [3]], lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2)),
    "max_pool2d 3 stride 2 padding 1": ([[1, 2, 6, 6]], lambda x: F.max_pool2d(x, 3, 2, 1)),
    "avg_pool2d 3 stride 2 padding 1": ([[1, 2, 6, 6]], lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "linear": ([[3, 7], [5, 7], [5]], lambda x, w, b: F.linear(x, w, b)),
    "linear relu": ([[2, 3, 7], [5, 7], [5]], lambda x, w, b: F.relu(F.linear(x, w, b))),
    "matmul broadcast": ([[2, 1, 3, 4], [2, 4, 2]], torch.matmul),
    "gelu": ([[20]], F.gelu),
    "sigmoid": ([[20]], torch.sigmoid),
    "tanh": ([[20]], torch.tanh),
    "div broadcast": ([[3, 4], [4]], lambda x, y: x / (y + 3)),
    "log_softmax": ([[3, 5]], lambda x: F.log_softmax(x, -1)),
    "softmax": ([[3, 5]], lambda x: F.softmax(x, -1)),
    "cross_entropy": ([[3, 5]], lambda x: F.cross_entropy(x, target)),
    "mse_loss": ([[3, 5], [3, 5]], F.mse_loss),
    "mean and amax": ([[3, 4, 2]], lambda x: x.mean((0, 2)) * x.amax(0).sum(-1)),
    "index_select": ([[5, 3]], lambda x: x.index_select(0, target)),
}


def numbers(t):
    return [float(f"{v:.9g}") for v in t.flatten().tolist()]


def draw(shape, seed):
    torch.manual_seed(seed)
    return torch.empty(shape).uniform_(-1, 1)


out = {"torch": torch.__version__, "cases": []}
for i, (name, (shapes, f)) in enumerate(cases.items()):
    seed = 100 * i
    inputs = [draw(s, seed + k).requires_grad_() for k, s in enumerate(shapes)]
    y = f(*inputs)
    (y * draw(y.shape, seed + len(shapes))).sum().backward()
    out["cases"].append(dict(name=name, seed=seed, shapes=shapes, output=numbers(y.detach()),
                             gradients=[numbers(x.grad) for x in inputs]))
text = json.dumps(out).replace('{"name"', '\n{"name"')
open(a.out, "w").write(text + "\n")
print(a.out, len(out["cases"]), "cases")
