"""What random cases of the differential test are drawn from: shapes, values, layouts, gradients. Everything comes from
the generator it is given."""
import math
import struct

FLOATS = ("float32", "float32", "bfloat16", "float64")
# "special" values are everywhere, "corrupted" arrays have one that is not finite here and there.
EXTREME_LABELS = (-1, -100, 2**31, -2**31, 2**63 - 1, -2**63)
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

    def extent_or_none(self, most, share=0.02):
        """Now and then 0."""
        return 0 if self.chance(share) else self.extent(most)

    def shape(self, rank=None, most=7):
        rank = self.g.randint(0, 4) if rank is None else rank
        return [self.extent_or_none(most) for _ in range(rank)]

    def value(self, dtype, style):
        g = self.g
        if dtype == "int64":
            return g.randint(-9, 9)
        if style == "special" and g.random() < 0.3:
            return rounded(g.choice(SPECIALS), dtype)
        if style == "corrupted" and g.random() < 0.02:
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
        if grad and dtype != "int64" and not self.chance(0.1):
            given["grad"] = True
        return given

    def labels(self, shape, count, least=0):
        """Whole numbers from `least` to `count` - 1; in some cases one of them is far out."""
        draw = lambda: self.g.randint(least, max(count - 1, least))  # noqa: E731
        given = self.tensor(shape, "int64", value=draw)
        values = given["values"].split()
        if values and self.chance(0.05):
            values[self.g.randrange(len(values))] = str(self.g.choice([count, *EXTREME_LABELS]))
            given["values"] = " ".join(values)
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
            if kind == 0:  # the last step may end outside: then strides interleave, (5, 2) for [n, 3] of [n, 5]
                step = self.g.randint(2, 3)
                base[i] = expanded[i] = max(extent * step - self.g.randint(0, step - 1), 0)
                views.insert(0, ["slice", i, 0, base[i], step])
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
    """The gradient handed in, of any layout."""
    return r.tensor(shape, dtype, grad=False, value=lambda: r.g.randint(-8, 8) / 4)


def end(r, shape, dtype, share):
    """Seeds and options of an operation that may end in relu. Then there is no backward: rounding decides on which
    side of 0 a result lies, and so whether a gradient passes."""
    relu = r.chance(share)
    return {} if relu else {"y": seed(r, shape, dtype)}, {"relu": relu}


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


def outputs(extent, kernel, stride, pad, dilation=1):
    return max((extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1, 0)
