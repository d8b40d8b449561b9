"""Random cases of operations that are made of others or work along one dimension, a function a family."""
from draw import FLOATS, broadcast, case, joined, outputs, rounded, seed


def activations(r):
    dtype, style, shape = r.g.choice(FLOATS), r.style(0.1), r.shape()
    op = r.g.choice(("leaky_relu", "silu", "softsign", "softplus", "clamp", "prelu", "pow_tensor"))
    if op == "prelu":
        shape = r.shape(r.g.randint(2, 4))
        count = 1 if r.chance(0.4) else shape[1]
        tensors = {"x": r.tensor(shape, dtype, style), "weight": r.tensor([count], dtype)}
        return case(op, tensors, {"y": seed(r, shape, dtype)})
    if op == "pow_tensor":
        exponents = broadcast(r, shape)
        positive = lambda: rounded(abs(r.g.gauss(0, 1)) + 0.125, dtype)  # noqa: E731
        tensors = {"a": r.tensor(shape, dtype, value=positive), "b": r.tensor(exponents, dtype)}
        return case(op, tensors, {"y": seed(r, joined(shape, exponents), dtype)})
    options = {}
    if op == "leaky_relu":
        options["slope"] = r.g.choice((0.01, 0.25, 0.0, -0.5))
    elif op == "softplus":
        options = {"beta": r.g.choice((1.0, 2.0, 0.5)), "threshold": r.g.choice((20.0, 1.0))}
    elif op == "clamp":
        whole = r.chance(0.3)
        if r.chance(0.4):
            dtype = "int64"
        for name in r.g.sample(("min", "max"), r.g.randint(1, 2)):
            options[name] = r.g.randint(-2, 2) if whole else r.g.randint(-8, 8) / 4
    result = "float32" if dtype == "int64" else dtype
    return case(op, {"x": r.tensor(shape, dtype, style)}, {"y": seed(r, shape, result)}, **options)


def picks(r):
    """A shape, a dimension of it, and the shape of an index into that."""
    shape = r.shape(r.g.randint(1, 4), 6)
    dim = r.g.randrange(len(shape))
    index = [r.extent_or_none(6) if i == dim else r.g.randint(min(e, 1), e) for i, e in enumerate(shape)]
    return shape, dim, index


def indexing(r):
    dtype = r.g.choice(FLOATS)
    op = r.g.choice(("gather", "scatter_add", "embedding", "cumsum", "sort", "topk", "pad", "cat", "split"))
    if op in ("gather", "scatter_add"):
        shape, dim, index = picks(r)
        tensors = {"x": r.tensor(shape, dtype), "index": r.labels(index, shape[dim])}
        if op == "gather":
            return case(op, tensors, {"y": seed(r, index, dtype)}, dim=dim)
        larger = r.chance(0.3)  # PyTorch has no gradient of such a source
        tensors["source"] = r.tensor([e + larger for e in index], dtype, grad=not larger)
        return case(op, tensors, {"y": seed(r, shape, dtype)}, dim=dim)
    if op == "embedding":
        rows, width, shape = r.extent_or_none(6), r.extent_or_none(6), r.shape(r.g.randint(0, 3), 4)
        padding = {"padding": r.g.randint(-rows - 1, rows)} if r.chance(0.4) else {}
        tensors = {"index": r.labels(shape, rows), "weight": r.tensor([rows, width], dtype)}
        return case(op, tensors, {"y": seed(r, shape + [width], dtype)}, **padding)
    shape = r.shape(r.g.randint(1, 4), 6)
    dim = r.g.randrange(len(shape))
    if op in ("sort", "topk"):  # no two values alike: PyTorch's topk says nothing of their order
        few = [v / 8 for v in range(-50, 51)]
        r.g.shuffle(few)
        x = r.tensor(shape, "float32" if dtype == "bfloat16" else dtype, value=few.pop if r.small else None,
                     views=op == "sort" and not r.small)
        if op == "sort":
            return case(op, {"x": x}, {"y": seed(r, shape, x["dtype"])}, dim=dim, descending=r.chance(0.5))
        k = r.g.randint(0, shape[dim])
        out = shape[:dim] + [k] + shape[dim + 1:]
        return case(op, {"x": x}, {"y": seed(r, out, x["dtype"])}, dim=dim, k=k, largest=r.chance(0.5))
    x = r.tensor(shape, dtype)
    if op == "cumsum":
        return case(op, {"x": x}, {"y": seed(r, shape, dtype)}, dim=dim)
    if op == "pad":
        sides = [r.g.randint(-1, 2) for _ in range(2 * r.g.randint(0, len(shape)))]
        out = list(shape)
        for i in range(len(sides) // 2):
            out[-1 - i] = max(out[-1 - i] + sides[2 * i] + sides[2 * i + 1], 0)
        return case(op, {"x": x}, {"y": seed(r, out, dtype)}, amounts=sides, value=r.g.choice((0, 1.5)))
    if op == "cat":
        other = shape[:dim] + [r.extent_or_none(4)] + shape[dim + 1:]
        out = shape[:dim] + [shape[dim] + other[dim]] + shape[dim + 1:]
        return case(op, {"a": x, "b": r.tensor(other, dtype)}, {"y": seed(r, out, dtype)}, dim=dim)
    size = r.extent(4)
    last = shape[dim] - (shape[dim] - 1) // size * size if shape[dim] else 0
    first, end = min(size, shape[dim]), last
    parts = {name: seed(r, shape[:dim] + [e] + shape[dim + 1:], dtype) for name, e in (("y", first), ("z", end))}
    return case(op, {"x": x}, parts, dim=dim, size=size)


CONVOLUTIONS = ("conv1d", "conv3d", "conv_transpose2d", "conv_transpose3d")


def convolutions(r):
    dtype, op = r.g.choice(FLOATS), r.g.choice(CONVOLUTIONS)
    groups, c, o = r.g.choice((1, 1, 2, 3)), r.extent_or_none(4), r.extent(4)
    spatial = int(op[-2])
    image = [r.extent(8 if spatial < 3 else 5) for _ in range(spatial)]
    kernel = [r.extent(min(3, e + 1)) for e in image]
    stride, dilation = [r.g.randint(1, 3) for _ in image], [r.g.choice((1, 1, 2)) for _ in image]
    padding = [r.g.randint(0, 2) for _ in image]
    n = r.extent_or_none(3)
    bias = r.tensor([o * groups], dtype) if r.chance(0.6) else None
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    rows = o * groups if c > 0 else 0  # what PyTorch makes of no input
    if op.startswith("conv_transpose"):
        weight = [c * groups, o] + kernel
        extra = [r.g.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)]
        out = [(e - 1) * s - 2 * p + d * (k - 1) + x + 1
               for e, s, p, d, k, x in zip(image, stride, padding, dilation, kernel, extra)]
        options["output_padding"] = extra
    else:
        weight = [o * groups, c] + kernel
        out = [outputs(e, k, s, p, d) for e, k, s, p, d in zip(image, kernel, stride, padding, dilation)]
    if op == "conv1d":
        options.update(stride=stride[0], padding=padding[0], dilation=dilation[0])
    tensors = {"x": r.tensor([n, c * groups] + image, dtype), "weight": r.tensor(weight, dtype), "bias": bias}
    return case(op, tensors, {"y": seed(r, [n, rows] + [max(e, 0) for e in out], dtype)}, **options)


def layers(r):
    dtype, op = r.g.choice(FLOATS), r.g.choice(("layer_norm", "rms_norm", "scaled_dot_product_attention"))
    if op == "scaled_dot_product_attention":
        lead = [r.extent_or_none(3) for _ in range(r.g.randint(0, 2))]
        queries, keys, width, values = r.extent_or_none(8), r.extent(8), r.extent(8), r.extent_or_none(8)
        mask = r.tensor(broadcast(r, [queries, keys]), dtype) if r.chance(0.3) else None
        tensors = {"query": r.tensor(lead + [queries, width], dtype), "key": r.tensor(lead + [keys, width], dtype),
                   "value": r.tensor(lead + [keys, values], dtype), "mask": mask}
        return case(op, tensors, {"y": seed(r, lead + [queries, values], dtype)},
                    causal=mask is None and r.chance(0.3))
    shape = r.shape(r.g.randint(1, 4))
    inner = shape[r.g.randrange(len(shape)):]
    tensors = {"x": r.tensor(shape, dtype), "weight": r.tensor(inner, dtype) if r.chance(0.7) else None}
    if op == "layer_norm":
        tensors["bias"] = r.tensor(inner, dtype) if r.chance(0.6) else None
    return case(op, tensors, {"y": seed(r, shape, dtype)}, shape=inner, eps=r.g.choice((1e-5, 1e-3)))


def packed(r):
    """Attention to what one linear layer gives, of several documents in a row or of rows of several lengths."""
    dtype, keys, size = r.g.choice(FLOATS), r.extent(3), r.extent(6)
    heads, batch, length = keys * r.extent(3), r.extent_or_none(3), r.extent(40)
    tensors = {"qkv": r.tensor([batch, length, (heads + 2 * keys) * size], dtype)}
    if r.chance(0.6):
        begins = [[r.chance(0.3) for _ in range(length)] for _ in range(batch)]
        numbers = [sum(row[:at + 1]) for row in begins for at in range(length)]
        if r.chance(0.2):  # equal numbers need not be neighbours
            r.g.shuffle(numbers)
        tensors["segments"] = {"dtype": "int32", "shape": [batch, length], "values": " ".join(map(str, numbers))}
    elif r.chance(0.5):
        tensors["lengths"] = r.tensor([batch], "int64", value=lambda: r.g.randint(1, length), views=False)
    return case("packed_attention", tensors, {"y": seed(r, [batch, length, heads * size], dtype)}, heads=heads,
                key_heads=keys, by_group=r.chance(0.5), causal=r.chance(0.7))


def pair_losses(r):
    dtype, shape, how = r.g.choice(FLOATS), r.shape(), r.g.randint(0, 2)
    op = r.g.choice(("binary_cross_entropy", "binary_cross_entropy_with_logits", "l1_loss", "smooth_l1_loss"))
    share = lambda: r.g.randint(0, 16) / 16  # noqa: E731
    sure = lambda: r.g.randint(1, 15) / 16  # noqa: E731
    tensors = {"a": r.tensor(shape, dtype, value=sure if op == "binary_cross_entropy" else None),
               "b": r.tensor(shape, dtype, value=share if "entropy" in op else None)}
    options = {"beta": r.g.choice((1.0, 0.5, 0.0))} if op == "smooth_l1_loss" else {}
    return case(op, tensors, {"y": seed(r, shape if how == 2 else [], dtype)}, reduction=how, **options)


FAMILIES = {"activations": activations, "indexing": indexing, "convolutions": convolutions, "layers": layers,
            "packed": packed, "pair_losses": pair_losses}
