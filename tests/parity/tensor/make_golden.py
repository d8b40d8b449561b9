"""Writes golden.json: random numbers and texts of tensors as PyTorch gives them.

Run: python3 make_golden.py [--out FILE]
Texts are repr(tensor); a tensor is given by its values, or by a formula that tensor_parity_test.cc has as well.
"""
import argparse, json, math
import torch

p = argparse.ArgumentParser()
p.add_argument("--out", default="golden.json")
a = p.parse_args()
torch.set_num_threads(1)
inf, nan = math.inf, math.nan
f32, f64, i64 = torch.float32, torch.float64, torch.int64

listed = [
    (f32, [], [1.0]), (f32, [], [1.5]), (f32, [], [nan]), (f64, [], [0.1]), (i64, [], [7]), (i64, [], [-12345678901]),
    (f32, [3], [1, 2, 3]), (f32, [3], [1, 2.5, -3]), (f32, [3], [0, 0, 0]), (f32, [2], [-0.0, 0.0]),
    (f32, [4], [1, inf, -inf, nan]), (f32, [3], [0.5, nan, -inf]), (f32, [2], [nan, inf]),
    (f32, [3], [1e-5, 1, 2]), (f32, [2], [1e-5, 2e-5]), (f32, [2], [1, 1001]), (f32, [2], [1, 1000]),
    (f32, [2], [0.1, 1e9]), (f32, [2], [1e8, 1e8]), (f32, [2], [2e8, 1e8]), (f32, [3], [1e10, nan, 0]),
    (f32, [2], [3.4e38, 1e-45]), (f64, [2], [1e-300, 1e300]), (f64, [3], [1 / 3, -2 / 3, 100]),
    (f32, [2], [0.99996, 0.99994]), (f32, [2], [0.00005, 0.00015]), (f32, [2], [16777216, -2]), (f32, [1], [123456.789]),
    (i64, [3], [1, -20, 300]), (i64, [2, 2], [0, 9223372036854775807, -9223372036854775808, 5]),
    (f32, [2, 2], [1, 2, 3, 4]), (f32, [1, 1, 1], [0.25]), (f32, [2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8.5]),
    (f32, [2, 1, 2, 1], [1, -2, 3, -4]), (f32, [0], []), (f64, [0], []), (i64, [0], []), (f32, [0, 3], []),
    (f32, [2, 0, 3], []), (i64, [3, 0], []), (torch.int32, [2], [1, 2]), (torch.uint8, [2], [7, 255]),
    (torch.bfloat16, [3], [1, 2.5, -3]), (f64, [2], [1, 2]), (torch.float16, [2], [0.1, 2]), (torch.int16, [2], [-3, 4]), (torch.int8, [1], [-3]),
    (torch.bool, [], [1]), (torch.bool, [2], [1, 1]), (torch.bool, [2, 2], [1, 0, 0, 1]), (torch.bool, [0], []), (torch.bool, [2, 0], []),
]
# i -> value; what tensor_parity_test.cc calls by the same name
formulas = {
    "count": lambda i: i,
    "odd": lambda i: i % 2,
    "tenth": lambda i: i * 0.125 - 3,
    "wide": lambda i: (i - 7.0) * 10.0 ** (i % 9 - 4),
}
made = [
    (f32, [30], "count"), (f32, [30], "tenth"), (f32, [30], "wide"), (f32, [25, 3], "tenth"), (i64, [40], "count"), (f64, [27], "tenth"), (f64, [8], "tenth"),
    (f32, [1000], "count"), (f32, [1001], "count"), (f32, [2000], "tenth"), (f32, [40, 30], "count"), (f32, [500, 3], "tenth"),
    (i64, [3, 500], "count"), (f32, [7, 7, 30], "tenth"), (f64, [11, 10, 10, 2], "wide"), (f32, [2, 600], "wide"), (f32, [2, 3, 1, 2, 1, 2], "tenth"),
    (torch.bool, [40], "odd"), (torch.bool, [50, 30], "odd"), (f32, [6, 200], "count"), (f64, [1, 1, 1300], "wide"), (f32, [2, 2, 13], "tenth"), (f32, [10, 10, 11], "wide"),
]


def values(t):
    return [str(v) for v in t.flatten().tolist()]


out = {"torch": torch.__version__, "texts": [], "made": [], "normal": [], "leaf": repr(torch.ones(2, requires_grad=True)),
       "long_leaf": repr(torch.arange(9.0).sub(0.5).requires_grad_())}
for dtype, shape, v in listed:
    t = torch.tensor(v, dtype=dtype).reshape(shape)
    out["texts"].append(dict(dtype=str(dtype), shape=shape, values=[str(x) for x in v], text=repr(t)))
for dtype, shape, name in made:
    n = math.prod(shape)
    t = torch.tensor([formulas[name](i) for i in range(n)], dtype=torch.float64).to(dtype).reshape(shape)
    out["made"].append(dict(dtype=str(dtype), shape=shape, formula=name, text=repr(t)))
for dtype in (f32, f64):
    for sizes in ([5, 4, 15], [16], [17, 3], [100, 1, 2], [3, 20, 3]):
        torch.manual_seed(11)
        draws = [torch.empty(n, dtype=dtype).normal_(0.5, 2.0) for n in sizes]
        out["normal"].append(dict(dtype=str(dtype), sizes=sizes, draws=[[float(f"{x:.17g}") for x in d.tolist()] for d in draws]))
torch.manual_seed(12)
out["randn"] = [float(f"{x:.9g}") for x in torch.randn(4, 9).flatten().tolist()]
torch.manual_seed(13)
out["uniform64"] = torch.empty(6, dtype=f64).uniform_(-2, 3).tolist()
out["arange"] = [dict(args=args, values=torch.arange(*args, dtype=f32).tolist())
                 for args in ([0.0, 1.0, 0.1], [5.0, 0.0, -1.5], [0.0, 0.0, 1.0], [1.0, 2.0, 0.3])]
text = json.dumps(out, allow_nan=False).replace(', {"', ',\n{"')
open(a.out, "w").write(text + "\n")
print(a.out, len(text))
