"""Random cases of the differential test, a function a family. Everything comes from the generator it is given."""
import math
import struct

FLOATS = ("float32", "float32", "bfloat16", "float64")
# "special" values are everywhere, "spoilt" arrays have one that is not finite here and there.
SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 1e-40, -1e-45, 3e38)


def rounded(value, dtype):
    """`value` as `dtype` has it."""
    if dtype == "float64" or dtype == "int64" or value != value or math.isinf(value):
        return value
    try:
        bits, = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def text(values, dtype):
    if dtype == "int64":
        return " ".join(str(v) for v in values)
    form = "%.17g" if dtype == "float64" else "%.9g"
    return " ".join(form % v for v in values)


class Random:
    """Draws shapes, values and views. `small`: few elements and short numbers, for the recorded cases."""

    def __init__(self, generator, small):
        self.g, self.small = generator, small

    def extent(self, most):
        return self.g.randint(1, min(most, 3) if self.small else most)

    def chance(self, share):
        return self.g.random() < share

    def shape(self, rank=None, most=7):
        rank = self.g.randint(0, 4) if rank is None else rank
        return [0 if self.chance(0.01) else self.extent(most) for _ in range(rank)]

    def value(self, dtype, style):
        g = self.g
        if dtype == "int64":
            return g.randint(-9, 9)
        if style == "special" and g.random() < 0.3:
            return rounded(g.choice(SPECIALS), dtype)
        if style == "spoilt" and g.random() < 0.02:
            return g.choice((math.nan, math.inf, -math.inf))
        if style == "wide":
            return rounded(g.gauss(0, 1) * 10.0 ** g.uniform(-30, 30), dtype)
        if style == "large":
            return rounded(1000 + g.gauss(0, 1), dtype)
        return g.randint(-16, 16) / 8 if self.small or style == "grid" else rounded(g.gauss(0, 1), dtype)

    def tensor(self, shape, dtype, style="plain", grad=True, views=True, value=None):
        """A tensor that is seen as `shape`, most often as a view of something else."""
        base, seen = (list(shape), []) if not views or self.chance(0.4) else self.base_of(list(shape))
        draw = value or (lambda: self.value(dtype, style))
        values = [draw() for _ in range(math.prod(base))]
        given = {"dtype": dtype, "shape": base, "values": text(values, dtype), "views": seen}
        if grad and dtype != "int64":
            given["grad"] = True
        return given

    def base_of(self, shape):
        """A base and the views that make `shape` of it: expanded, stepped, offset and permuted."""
        base, views = list(shape), []
        order = list(range(len(shape)))
        if self.chance(0.5):
            self.g.shuffle(order)
            base = [shape[order.index(i)] for i in range(len(shape))]
            views.append(["permute", order])
        expanded = list(base)
        for i, extent in enumerate(base):
            kind = self.g.randint(0, 7)
            if kind == 0:
                step = self.g.randint(2, 3)
                base[i] = expanded[i] = extent * step
                views.insert(0, ["slice", i, 0, extent * step, step])
            elif kind == 1:
                base[i] = expanded[i] = extent + 2
                views.insert(0, ["slice", i, 1, extent + 1, 1])
            elif kind == 2 and extent > 0:
                base[i] = 1
        if base != expanded:
            views.insert(0, ["expand", expanded])
        return base, views

    def style(self, special=0.15):
        return self.g.choices(("plain", "grid", "wide", "special"), (6, 2, 1, 10 * special))[0]


def case(op, tensors, seeds=None, **options):
    return {"op": op, "tensors": {k: v for k, v in tensors.items() if v is not None}, "options": options,
            "seeds": seeds or {}}


def seed(r, shape, dtype):
    return {"dtype": dtype, "shape": list(shape),
            "values": text([r.g.randint(-8, 8) / 4 for _ in range(math.prod(shape))], dtype)}


def end(r, shape, dtype, share):
    """Seeds and options of an operation that may end in relu. Then there is no backward: rounding decides on which
    side of 0 a result lies, and so whether a gradient passes."""
    relu = r.chance(share)
    return {} if relu else {"y": seed(r, shape, dtype)}, {"relu": relu}


UNARY = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "relu", "sigmoid", "tanh", "gelu")


def unary(r):
    dtype, shape, style = r.g.choice(FLOATS), r.shape(), r.style(0.3)
    op = r.g.choice(UNARY + ("add_number", "mul_number", "pow"))
    if op in UNARY:
        return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, dtype)})
    if r.chance(0.15):
        number = r.g.choice((0, 1, 2, 3, -1, 0.5))
        return case(op, {"x": r.tensor(shape, "int64")}, number=number)
    number = r.g.choice((0.0, -0.0, 1.0, 2.0, -1.0, 0.5, -2.0, 3.0, r.g.gauss(0, 2)))
    return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, dtype)}, number=number)


def broadcast(r, shape):
    """A shape that broadcasts with `shape`, now and then not."""
    cut = shape[r.g.randint(0, len(shape)):] if r.chance(0.3) else list(shape)
    result = [1 if r.chance(0.3) else e for e in cut]
    if result and r.chance(0.03):
        result[0] += 2
    return result


def joined(a, b):
    """The common shape; a's where there is none, which both sides refuse."""
    length = max(len(a), len(b))
    a, b = [1] * (length - len(a)) + list(a), [1] * (length - len(b)) + list(b)
    return [y if x == 1 else x for x, y in zip(a, b)]


def binary(r):
    dtype, style = r.g.choice(FLOATS + ("int64",)), r.style(0.3)
    op = r.g.choice(("add", "sub", "mul", "div", "maximum", "minimum", "equal", "greater", "greater_equal", "less"))
    a = r.shape()
    b = broadcast(r, a)
    if dtype == "int64":
        draw = (lambda: r.g.choice((-7, -2, -1, 1, 3, 5))) if op == "div" else None
        return case(op, {"a": r.tensor(a, dtype), "b": r.tensor(b, dtype, value=draw)})
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
    dtype, style = r.g.choice(FLOATS), "spoilt" if r.chance(0.05) else "plain"
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


def outputs(extent, kernel, stride, pad, dilation=1):
    return max((extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1, 0)


def image(r, channels, dtype, style, grad=True):
    """x [N, C, H, W]; as often as not channels-last in memory."""
    n, h, w = (0 if r.chance(0.02) else r.extent(4)), r.extent(11), r.extent(11)
    given = r.tensor([n, channels, h, w], dtype, style, grad, views=r.chance(0.3))
    if not given["views"] and r.chance(0.5):
        given["shape"], given["views"] = [n, h, w, channels], [["permute", [0, 3, 1, 2]]]
    return given, [n, channels, h, w]


def convolution(r):
    dtype = r.g.choice(FLOATS)
    style = "spoilt" if r.chance(0.05) else "plain"
    groups = r.g.choice((1, 1, 1, 2, 3))
    c, o = r.extent(6), r.extent(6)
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
    x, shape = image(r, r.extent(20), dtype, style)
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
    channels = r.extent(20)
    style = r.g.choice(("plain", "plain", "large", "spoilt" if r.chance(0.2) else "plain"))
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
    rows, classes, how = r.extent(9), r.extent(12), r.g.randint(0, 2)
    last = classes if r.chance(0.02) else classes - 1
    target = r.tensor([rows], "int64", value=lambda: r.g.randint(0, last))
    return case(op, {"x": r.tensor([rows, classes], dtype, style), "target": target},
                {"y": seed(r, [rows] if how == 2 else [], dtype)}, reduction=how)


def views(r):
    dtype, shape = r.g.choice(FLOATS), r.shape(r.g.randint(1, 4))
    if r.chance(0.25):
        dim, count = r.g.randrange(len(shape)), r.extent(5)
        most = shape[dim] - (0 if r.chance(0.03) else 1)
        index = r.tensor([count], "int64", value=lambda: r.g.randint(0, max(most, 0)))
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
    tensors = {"p": r.tensor(shape, dtype, views=False)}
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
            "optimizers": optimizers}
