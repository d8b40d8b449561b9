"""PyTorch's side of composed_functions.cc."""
import torch
import torch.nn.functional as F

from more_reference import REDUCTIONS, one, several


def dims(t, o):
    return o.get("dims") or tuple(range(t["x"].dim()))


def order_of(o):
    return float(o.get("order", 2)) * (float("inf") if o.get("infinite") else 1)


def picked(function):
    def pick(t, o):
        values, indices = function(t["x"], o["dim"], o.get("keep", False))
        return {"y": values, "indices": indices}
    return pick


def compare_all(a, b):
    return several((a == b, a != b, a > b, a >= b, a < b, a <= b))


def compare_number(t, o):
    x, n = t["x"], o["number"]
    return several((x == n, n != x, x > n, n >= x, x < n, n <= x))


def prod(t, o):
    return torch.prod(t["x"], o["dim"], o.get("keep", False)) if "dim" in o else torch.prod(t["x"])


def einsum(t, o):
    return torch.einsum(o["pattern"], *[t[name] for name in "abc" if t[name] is not None])


def of_values(function):
    return one(lambda t, o: function(t["a"].detach(), t["b"].detach()).to(t["a"].dtype))


def interpolate(t, o):
    mode = ("linear", "bilinear", "trilinear")[t["x"].dim() - 3] if o.get("linear") else \
        "bicubic" if o.get("cubic") else "nearest"
    scale = o.get("factor") or (tuple(map(float, o["scale"])) if "scale" in o else None)
    corners = {} if mode == "nearest" else {"align_corners": o.get("align_corners", False)}
    return F.interpolate(t["x"], o.get("size"), scale, mode, **corners)


def pool(dims):
    def run(t, o):
        kernel = o.get("kernel", 2)
        function = getattr(F, f"{'max' if o.get('max') else 'avg'}_pool{dims}d")
        return function(t["x"], kernel, o.get("pool_stride", kernel), o.get("pool_padding", 0))
    return one(run)


def max_pool(t, o):
    function = getattr(F, f"max_pool{t['x'].dim() - 2}d")
    return function(t["x"], o["kernel"], o.get("pool_stride"), o.get("pool_padding", 0), o.get("pool_dilation", 1))


def lerp(t, o):
    return torch.lerp(t["a"], t["b"], o.get("share", 0.5) if t["weight"] is None else t["weight"])


def pad_mode(t, o):
    """In any dimension: PyTorch pads the last ones of tensors that have a batch and channels."""
    x, mode = t["x"], ("constant", "reflect", "replicate", "circular")[o["mode"]]
    return F.pad(x, o["amounts"], mode)


def patches(o):
    return {"kernel_size": o["kernel"], "stride": o.get("patch_stride", 1), "padding": o.get("patch_padding", 0),
            "dilation": o.get("patch_dilation", 1)}


def grid_sample(t, o):
    return F.grid_sample(t["x"], t["grid"], "nearest" if o.get("nearest") else "bilinear",
                         "border" if o.get("border") else "zeros", o.get("align_corners", False))


def product(function):
    return one(lambda t, o: function(t["x"], t["a"], t["b"], beta=o.get("beta", 1), alpha=o.get("alpha", 1)))


OPERATIONS = {
    "unfold": one(lambda t, o: F.unfold(t["x"], **patches(o))),
    "fold": one(lambda t, o: F.fold(t["x"], o["size"], **patches(o))),
    "grid_sample": one(grid_sample),
    "addmm": product(torch.addmm), "baddbmm": product(torch.baddbmm), "addmv": product(torch.addmv),
    **{name: one(lambda t, o, f=getattr(torch, name): f(t["x"], t["a"], t["b"], value=o.get("value", 1)))
       for name in ("addcmul", "addcdiv")},
    "lerp": one(lerp), "max_pool": one(max_pool),
    "group_norm": one(lambda t, o: F.group_norm(t["x"], o["groups"], t["weight"], t["bias"], o.get("eps", 1e-5))),
    "instance_norm": one(lambda t, o: F.instance_norm(t["x"], weight=t["weight"], bias=t["bias"])),
    "pad_mode": one(pad_mode),
    "interpolate": one(interpolate),
    "pool1d": pool(1), "pool3d": pool(3),
    "adaptive_avg_pool1d": one(lambda t, o: F.adaptive_avg_pool1d(t["x"], o["length"])),
    "conv_transpose1d": one(lambda t, o: F.conv_transpose1d(
        t["x"], t["weight"], t["bias"], o.get("stride", 1), o.get("padding", 0), o.get("output_padding", 0),
        o.get("groups", 1), o.get("dilation", 1))),
    "number_sub": one(lambda t, o: o["number"] - t["x"]),
    "number_div": one(lambda t, o: o["number"] / t["x"]),
    "not_equal": of_values(torch.ne), "less_equal": of_values(torch.le),
    "comparisons": lambda t, o: compare_all(t["a"], t["b"]),
    "comparisons_number": compare_number,
    "var": one(lambda t, o: torch.var(t["x"], dims(t, o), correction=o.get("correction", 1), keepdim=o.get("keep", False))),
    "std": one(lambda t, o: torch.std(t["x"], dims(t, o), correction=o.get("correction", 1), keepdim=o.get("keep", False))),
    "norm": one(lambda t, o: torch.linalg.vector_norm(t["x"], order_of(o), dims(t, o), o.get("keep", False))),
    "logsumexp": one(lambda t, o: torch.logsumexp(t["x"], dims(t, o), o.get("keep", False))),
    "prod": one(prod),
    "max": picked(torch.max), "min": picked(torch.min),
    "argmin": one(lambda t, o: torch.argmin(t["x"], o.get("dim", -1), o.get("keep", False))),
    "isnan": one(lambda t, o: torch.isnan(t["x"])), "isinf": one(lambda t, o: torch.isinf(t["x"])),
    "isfinite": one(lambda t, o: torch.isfinite(t["x"])),
    "masked_fill": one(lambda t, o: torch.masked_fill(t["x"], t["mask"] != 0, o["value"])),
    "tril": one(lambda t, o: torch.tril(t["x"], o.get("diagonal", 0))),
    "triu": one(lambda t, o: torch.triu(t["x"], o.get("diagonal", 0))),
    "flip": one(lambda t, o: torch.flip(t["x"], o["dims"])),
    "roll": one(lambda t, o: torch.roll(t["x"], o["shifts"], o.get("dims"))),
    "one_hot": one(lambda t, o: F.one_hot(t["index"], o.get("classes", -1))),
    "einsum": one(einsum),
    "cross_entropy_options": one(lambda t, o: F.cross_entropy(
        t["x"], t["target"], None if t["weight"] is None else t["weight"].detach(), reduction=REDUCTIONS[o["reduction"]],
        ignore_index=o.get("ignore", -10**9), label_smoothing=o.get("smoothing", 0.0))),
    "kl_div": one(lambda t, o: F.kl_div(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]],
                                        log_target=o.get("log_target", False))),
    "pos_weight": one(lambda t, o: F.binary_cross_entropy_with_logits(
        t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]], pos_weight=t["pos_weight"])),
}
