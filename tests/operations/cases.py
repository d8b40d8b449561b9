"""Random cases of the differential test, a function a family."""
import math

import more_cases
from draw import FLOATS, broadcast, case, end, joined, outputs, rounded, seed, text

UNARY = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "relu", "sigmoid", "tanh", "gelu",
         "sin", "cos", "erf", "expm1", "log1p", "floor", "ceil", "round", "trunc", "sign")


def unary(r):
    dtype, shape, style = r.g.choice(FLOATS), r.shape(), r.style(0.3)
    op = r.g.choice(UNARY + ("add_number", "sub_number", "mul_number", "div_number", "pow"))
    if op in UNARY:
        return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, dtype)})
    if r.chance(0.3):
        number = r.g.choice((0, 1, 2, 3, -1, -7, 2**40, 0.5, 2.0, -1.0, 1e-3))
        return case(op, {"x": r.tensor(shape, "int64")}, number=number)
    number = r.g.choice((0.0, -0.0, 1.0, 2.0, -1.0, 0.5, -2.0, 3, -3, r.g.gauss(0, 2)))
    return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, dtype)}, number=number)


def binary(r):
    dtype, style = r.g.choice(FLOATS + ("int64",)), r.style(0.3)
    op = r.g.choice(("add", "sub", "mul", "div", "maximum", "minimum", "equal", "greater", "greater_equal", "less"))
    a = r.shape()
    b = broadcast(r, a)
    if dtype == "int64":
        return case(op, {"a": r.tensor(a, dtype), "b": r.tensor(b, dtype)})
    tensors = {"a": r.tensor(a, dtype, style), "b": r.tensor(b, dtype, style)}
    return case(op, tensors, {"y": seed(r, joined(a, b), dtype)})


def where(r):
    dtype, style, shape = r.g.choice(FLOATS), r.style(0.3), r.shape()
    a, b = broadcast(r, shape), broadcast(r, shape)
    chosen = r.tensor(shape, dtype, grad=False, value=lambda: float(r.g.randint(0, 1)))
    tensors = {"condition": chosen, "a": r.tensor(a, dtype, style), "b": r.tensor(b, dtype, style)}
    return case("where", tensors, {"y": seed(r, joined(shape, joined(a, b)), dtype)})


def reductions(r):
    op = r.g.choice(("sum", "mean", "amax", "amin", "argmax"))
    dtype = r.g.choice(FLOATS + (("int64",) if op != "mean" else ()))
    shape = r.shape(None if op != "argmax" else r.g.randint(1, 4), 9)
    x = r.tensor(shape, dtype, r.style(0.1), grad=op != "argmax")
    if op == "argmax":
        return case(op, {"x": x})
    rank = len(shape)
    dims = r.g.sample(range(rank), r.g.randint(0, rank))
    dims = [d - rank if r.chance(0.3) else d for d in dims]
    if rank and r.chance(0.02):
        dims.append(rank + 3)
    keep = r.chance(0.5)
    gone = {d % rank for d in dims if rank and -rank <= d < rank} or set(range(rank))
    left = [1 if i in gone else e for i, e in enumerate(shape) if keep or i not in gone]
    return case(op, {"x": x}, {"y": seed(r, left, dtype)} if dtype != "int64" else None, dims=dims, keep=keep)


def matmul(r):
    dtype, style = r.g.choice(FLOATS), "corrupted" if r.chance(0.05) else "plain"
    m, k, n = ([0 if r.chance(0.03) else r.extent(20) for _ in range(3)])
    if r.chance(0.35):
        lead = [r.extent(4) for _ in range(r.g.randint(0, 2))]
        x, w = r.tensor(lead + [k], dtype, style), r.tensor([n, k], dtype, style)
        bias_dtype = "float32" if dtype == "bfloat16" and r.chance(0.4) else dtype
        bias = r.tensor([n], bias_dtype) if r.chance(0.6) else None
        seeds, options = end(r, lead + [n], dtype, 0.3)
        return case("linear", {"x": x, "weight": w, "bias": bias}, seeds, **options)
    batch = [r.extent(4) for _ in range(r.g.randint(0, 2))]
    other = broadcast(r, batch)
    a, b = batch + [m, k], other + [k, n]
    if r.chance(0.1):
        a, m = [k], None
    elif r.chance(0.1):
        b, n = [k], None
    left, right = (a[:-2] if m is not None else []), (b[:-2] if n is not None else [])
    out = joined(left, right) + ([m] if m is not None else []) + ([n] if n is not None else [])
    return case("matmul", {"a": r.tensor(a, dtype, style), "b": r.tensor(b, dtype, style)},
                {"y": seed(r, out, dtype)})


def image(r, channels, dtype, style, grad=True):
    """x [N, C, H, W]; as often as not channels-last in memory."""
    n, h, w = r.extent_or_none(4, 0.03), r.extent_or_none(11, 0.01), r.extent_or_none(11, 0.01)
    given = r.tensor([n, channels, h, w], dtype, style, grad, views=r.chance(0.3))
    if not given["views"] and r.chance(0.5):
        given["shape"], given["views"] = [n, h, w, channels], [["permute", [0, 3, 1, 2]]]
    return given, [n, channels, h, w]


def convolution(r):
    dtype = r.g.choice(FLOATS)
    style = "corrupted" if r.chance(0.05) else "plain"
    groups = r.g.choice((1, 1, 1, 2, 3))
    c, o = r.extent_or_none(6), r.extent_or_none(6, 0.01)
    if groups == 1 and not r.small and r.chance(0.1):
        c, o = 32, 32
    x, shape = image(r, c * groups, dtype, style)
    kernel = [r.extent(min(4, e + 1)) for e in shape[2:]]
    options = {"stride": [r.g.randint(1, 3), r.g.randint(1, 3)], "padding": [r.g.randint(0, 2), r.g.randint(0, 2)],
               "dilation": [r.g.choice((1, 1, 2)), r.g.choice((1, 1, 2))], "groups": groups}
    if r.chance(0.4):
        options.update(stride=[1, 1], dilation=[1, 1])
    if r.chance(0.02):
        options["padding"] = [-1, 0]
    if r.chance(0.02):
        options["stride"] = [0, 1]
    w = r.tensor([o * groups, c] + kernel, dtype)
    bias = None
    if r.chance(0.6):
        bias = r.tensor([o * groups], "float32" if dtype == "bfloat16" and r.chance(0.4) else dtype)
    h, v = (outputs(e, k, max(s, 1), p, d) for e, k, s, p, d in
            zip(shape[2:], kernel, options["stride"], options["padding"], options["dilation"]))
    tensors = {"x": x, "weight": w, "bias": bias}
    o = o if c > 0 else 0  # what PyTorch makes of no input
    if r.chance(0.2) and dtype != "bfloat16":
        pool = {"kernel": [2, r.g.randint(1, 3)], "pool_padding": [0, 0], "max": r.chance(0.5)}
        pool["pool_stride"] = [2, pool["kernel"][1] + r.g.randint(0, 1)]
        h, v = (outputs(e, k, s, 0) for e, k, s in zip((h, v), pool["kernel"], pool["pool_stride"]))
        return case("conv2d_relu_pool2d", tensors, {"y": seed(r, [shape[0], o * groups, h, v], dtype)},
                    **options, **pool)
    seeds, ending = end(r, [shape[0], o * groups, h, v], dtype, 0.2)
    return case("conv2d", tensors, seeds, **ending, **options)


def pooling(r):
    dtype, style = r.g.choice(FLOATS), r.style(0.1)
    x, shape = image(r, r.extent_or_none(20), dtype, style)
    if r.chance(0.4):
        size = [r.extent(8), r.extent(8)]
        return case("adaptive_avg_pool2d", {"x": x}, {"y": seed(r, shape[:2] + size, dtype)}, size=size)
    kernel = [r.extent(min(4, e + 1)) for e in shape[2:]]
    if r.chance(0.03):
        kernel[0] = r.g.choice((0, -1))
    stride = [r.g.randint(1, 3), r.g.randint(1, 3)]
    pad = [r.g.randint(0, max(k, 0) // 2) for k in kernel]
    if r.chance(0.02):
        pad[0] = kernel[0]
    out = [outputs(e, k, s, p) for e, k, s, p in zip(shape[2:], kernel, stride, pad)]
    return case("pool2d", {"x": x}, {"y": seed(r, shape[:2] + out, dtype)}, kernel=kernel, pool_stride=stride,
                pool_padding=pad, max=r.chance(0.5))


def batch_norm(r):
    dtype = r.g.choice(FLOATS)
    channels = r.extent_or_none(20)
    style = r.g.choice(("plain", "plain", "large", "corrupted" if r.chance(0.2) else "plain"))
    x, shape = image(r, channels, dtype, style)
    of = "float64" if dtype == "float64" else "float32"
    positive = lambda: rounded(abs(r.g.gauss(0, 1)) + 0.25, of)  # noqa: E731
    training = r.chance(0.7)
    tensors = {"x": x,
               "weight": r.tensor([channels], of) if r.chance(0.7) else None,
               "bias": r.tensor([channels], of) if r.chance(0.7) else None,
               "residual": r.tensor(shape, dtype) if r.chance(0.3) else None}
    if r.chance(0.6) or not training:
        for name, value in (("running_mean", None), ("running_var", positive)):
            tensors[name] = r.tensor([channels], of, grad=False, value=value)
            if training:  # is written: a column of a matrix, not a broadcast
                tensors[name]["views"] = []
                tensors[name]["shape"] = [channels]
                draw = value or (lambda: r.value(of, "plain"))
                tensors[name]["values"] = text([draw() for _ in range(channels)], of)
                if r.chance(0.5):
                    tensors[name]["shape"] = [channels, 2]
                    tensors[name]["values"] = text([draw() for _ in range(2 * channels)], of)
                    tensors[name]["views"] = [["select", 1, 1]]
    seeds, ending = end(r, shape, dtype, 0.3)
    return case("batch_norm", tensors, seeds, training=training, eps=r.g.choice((1e-5, 1e-3)),
                momentum=r.g.choice((0.1, 0.5)), **ending)


def losses(r):
    dtype, style = r.g.choice(FLOATS), r.style(0.1)
    op = r.g.choice(("softmax", "log_softmax", "cross_entropy", "mse_loss"))
    if op == "mse_loss":
        shape, how = r.shape(), r.g.randint(0, 2)
        return case(op, {"a": r.tensor(shape, dtype), "b": r.tensor(shape, dtype)},
                    {"y": seed(r, shape if how == 2 else [], dtype)}, reduction=how)
    if r.chance(0.2):
        style = "large"
    if op != "cross_entropy":
        shape = r.shape(r.g.randint(1, 3), 12)
        return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, dtype)})
    rows, classes, how = r.extent_or_none(9), r.extent_or_none(12), r.g.randint(0, 2)
    ignore = {"ignore": r.g.choice((-100, -1, 0, -2**63, 2**63 - 1))} if r.chance(0.25) else {}
    target = r.labels([rows], classes)
    if ignore and rows > 0 and r.chance(0.7):
        target["values"] = " ".join(str(ignore["ignore"]) if r.chance(0.4) else v for v in target["values"].split())
    return case(op, {"x": r.tensor([rows, classes], dtype, style), "target": target},
                {"y": seed(r, [rows] if how == 2 else [], dtype)}, reduction=how, **ignore)


def views(r):
    dtype, shape = r.g.choice(FLOATS), r.shape(r.g.randint(1, 4))
    if r.chance(0.25):
        dim, count = r.g.randrange(len(shape)), r.extent_or_none(5)
        index = r.labels([count], shape[dim])
        out = shape[:dim] + [count] + shape[dim + 1:]
        return case("index_select", {"x": r.tensor(shape, dtype, r.style()), "index": index},
                    {"y": seed(r, out, dtype)}, dim=dim)
    x = r.tensor(shape, dtype, r.style(), views=True)
    if len(shape) == 4 and r.chance(0.5):
        return case("channels_last", {"x": x}, {"y": seed(r, shape, dtype)})
    total = math.prod(shape)
    if r.chance(0.5) and total > 0:
        halves = [2, total // 2] if total % 2 == 0 else [total, 1]
        shape = r.g.choice(([total], [-1], halves, [1] + shape, [total + 1] if r.chance(0.1) else [total, 1]))
        x["views"].append(["reshape", shape])
        shape = [total] if shape == [-1] else shape
    elif r.chance(0.3):
        shape = [r.extent(3)] + shape
        x["views"].append(["expand", [shape[0]] + [-1 if r.chance(0.5) else e for e in shape[1:]]])
    elif r.chance(0.3):
        x["views"].append(["unsqueeze", r.g.randrange(len(shape) + 1)])
        at = x["views"][-1][1]
        shape = shape[:at] + [1] + shape[at:]
    return case("copy", {"x": x}, {"y": seed(r, shape, dtype)})


def optimizers(r):
    dtype = r.g.choice(FLOATS)
    shape = r.shape(r.g.randint(1, 3))
    tensors = {"p": {**r.tensor(shape, dtype, views=False), "grad": True}}
    for i in range(r.g.randint(1, 3)):
        tensors[f"g{i}"] = r.tensor(shape, dtype, grad=False)
    options = {"lr": r.g.choice((0.1, 0.01)), "weight_decay": r.g.choice((0.0, 0.1))}
    if r.chance(0.5):
        return case("adamw", tensors, beta1=0.9, beta2=r.g.choice((0.99, 0.999)), eps=1e-8, **options)
    momentum = r.g.choice((0.0, 0.9))
    nesterov = momentum != 0 and r.chance(0.4)
    dampening = 0.0 if nesterov or momentum == 0 else r.g.choice((0.0, 0.1))
    return case("sgd", tensors, momentum=momentum, dampening=dampening, nesterov=nesterov, **options)


FAMILIES = {"unary": unary, "binary": binary, "where": where, "reductions": reductions, "matmul": matmul,
            "conv2d": convolution, "pooling": pooling, "batch_norm": batch_norm, "losses": losses, "views": views,
            "optimizers": optimizers, **more_cases.FAMILIES}
