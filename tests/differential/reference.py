"""PyTorch's side of the differential test: what each operation of operations.cc is there."""
import torch
import torch.nn.functional as F

import more_reference
from more_reference import REDUCTIONS, one

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "int64": torch.int64}


def seen_through(tensor, view):
    name, *args = view
    if name == "slice":
        dim, start, end, step = args
        index = [slice(None)] * tensor.dim()
        index[dim] = slice(start, end, step)
        return tensor[tuple(index)]
    if name == "expand":
        return tensor.expand(args[0])
    if name == "reshape":
        return tensor.reshape(args[0])
    if name == "permute":
        return tensor.permute(args[0])
    return getattr(tensor, name)(*args)  # select, transpose, unsqueeze


class Arguments(dict):
    """The tensors of a case; `bases` are what their views look at. None where the case has none."""

    def __init__(self, case, wide, as_they_are=False):
        super().__init__()
        self.bases, self.as_they_are = {}, as_they_are
        for name, given in case["tensors"].items():
            base = make(given, wide)
            if given.get("grad"):
                base.requires_grad_(True)
            self.bases[name] = base
            self[name] = viewed(base, given)

    def __missing__(self, name):
        return None

    def dense(self, name):
        """In row-major order, for what PyTorch computes wrongly in others. Not where it matters what is kept."""
        return self[name] if self[name] is None or self.as_they_are else self[name].contiguous()


def viewed(base, given):
    for view in given.get("views", []):
        base = seen_through(base, view)
    return base


def seed_of(given, wide):
    """A gradient to hand in, in the layout of the case."""
    return viewed(make(given, wide), given)


def make(given, wide):
    dtype = DTYPES[given["dtype"]]
    number = int if dtype == torch.int64 else float
    values = torch.tensor([number(v) for v in given["values"].split()],
                          dtype=torch.int64 if number is int else torch.float64)
    if wide and dtype != torch.int64:
        dtype = torch.float64
    return values.to(dtype).reshape(given["shape"])


def run(case, wide, changed=None):
    """Results by name, as operations.cc has them; `wide`: floats as float64; `changed`: the argument or result that is
    written to in place between forward and backward. Throws what PyTorch throws."""
    arguments = Arguments(case, wide, changed is not None)
    results = OPERATIONS[case["op"]](arguments, case["options"])
    values = {name: tensor.detach().clone() for name, tensor in results.items()}
    if changed is not None:
        with torch.no_grad():
            (arguments.bases[changed] if changed in arguments.bases else results[changed].detach()).fill_(1)
    for name, seed in case["seeds"].items():
        if results[name].requires_grad:
            results[name].backward(seed_of(seed, wide), retain_graph=True)
    for name, base in sorted(arguments.bases.items()):
        if base.grad is not None:
            values["grad " + name] = base.grad
    return values


def activated(y, options):
    return torch.relu(y) if options.get("relu") else y


def like_x(bias, x):
    """A bias may be float32 beside bfloat16 activations; PyTorch has them in one dtype."""
    return None if bias is None else bias.to(x.dtype)


def conv(t, o):
    # PyTorch's float64 loops refuse a stepped weight in backward.
    weight = t.dense("weight") if t["weight"].dtype == torch.float64 else t["weight"]
    return F.conv2d(t["x"], weight, like_x(t["bias"], t["x"]), o["stride"], o["padding"], o["dilation"],
                    o["groups"])


def pool(x, o):
    function = F.max_pool2d if o.get("max") else F.avg_pool2d
    return function(x, o["kernel"], o["pool_stride"], o["pool_padding"])


def batch_norm(t, o):
    # Dense: where strides fit two layouts (N = W = 1), PyTorch 2.15 adds up the wrong gradients for weight and bias,
    # and takes a stepped weight and expanded statistics for dense ones in the backward pass of evaluation.
    mean, var = t["running_mean"], t["running_var"]
    if not o["training"]:
        mean, var = t.dense("running_mean"), t.dense("running_var")
    y = F.batch_norm(t.dense("x"), mean, var, t.dense("weight"), t["bias"], o["training"], o["momentum"], o["eps"])
    if y.requires_grad:
        y.register_hook(lambda grad: grad.clone(memory_format=torch.contiguous_format))
    if t["residual"] is not None:
        y = y + t["residual"]
    results = {"y": activated(y, o)}
    for name in ("running_mean", "running_var"):
        if t[name] is not None:
            results[name] = t.bases[name]
    return results


def reduce(function):
    """amax and amin, and sum and mean, over dimensions (none: all)."""
    return one(lambda t, o: function(t["x"], o["dims"] or tuple(range(t["x"].dim())), keepdim=o["keep"])
               if t["x"].dim() else function(t["x"]))


def optimize(make_optimizer):
    def function(t, o):
        parameter = torch.nn.Parameter(t.bases["p"].detach().clone())
        optimizer = make_optimizer([parameter], o)
        i = 0
        while t[f"g{i}"] is not None:
            parameter.grad = t[f"g{i}"].clone()
            optimizer.step()
            i += 1
        return {"p": parameter}
    return function


def sgd(parameters, o):
    return torch.optim.SGD(parameters, o["lr"], o["momentum"], o["dampening"], o["weight_decay"], o["nesterov"],
                           foreach=False)


def adamw(parameters, o):
    return torch.optim.AdamW(parameters, o["lr"], (o["beta1"], o["beta2"]), o["eps"], o["weight_decay"],
                             foreach=False)


def compare(function):
    return one(lambda t, o: function(t["a"], t["b"]).to(t["a"].dtype))


OPERATIONS = {
    **{name: one(lambda t, o, f=getattr(torch, name): f(t["x"]))
       for name in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "relu", "sigmoid", "tanh")},
    "gelu": one(lambda t, o: F.gelu(t["x"])),
    "add_number": one(lambda t, o: t["x"] + o["number"]),
    "sub_number": one(lambda t, o: t["x"] - o["number"]),
    "mul_number": one(lambda t, o: t["x"] * o["number"]),
    "div_number": one(lambda t, o: t["x"] / o["number"]),
    "pow": one(lambda t, o: t["x"] ** o["number"]),
    **{name: one(lambda t, o, f=getattr(torch, name): f(t["a"], t["b"]))
       for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    "equal": compare(torch.eq), "greater": compare(torch.gt), "greater_equal": compare(torch.ge),
    "less": compare(torch.lt),
    "where": one(lambda t, o: torch.where(t["condition"] != 0, t["a"], t["b"])),
    "sum": reduce(torch.sum), "mean": reduce(torch.mean), "amax": reduce(torch.amax), "amin": reduce(torch.amin),
    "argmax": one(lambda t, o: torch.argmax(t["x"], -1)),
    "softmax": one(lambda t, o: torch.softmax(t["x"], -1)),
    "log_softmax": one(lambda t, o: torch.log_softmax(t["x"], -1)),
    "cross_entropy": one(lambda t, o: F.cross_entropy(t["x"], t["target"], reduction=REDUCTIONS[o["reduction"]],
                                                      ignore_index=o.get("ignore", -10**9))),
    "mse_loss": one(lambda t, o: F.mse_loss(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]])),
    "matmul": one(lambda t, o: torch.matmul(t["a"], t["b"])),
    "linear": one(lambda t, o: activated(F.linear(t["x"], t["weight"], like_x(t["bias"], t["x"])), o)),
    "conv2d": one(lambda t, o: activated(conv(t, o), o)),
    "pool2d": one(lambda t, o: pool(t["x"], o)),
    "conv2d_relu_pool2d": one(lambda t, o: pool(torch.relu(conv(t, o)), o)),
    "adaptive_avg_pool2d": one(lambda t, o: F.adaptive_avg_pool2d(t["x"], o["size"])),
    "batch_norm": batch_norm,
    "copy": one(lambda t, o: t["x"].clone()),
    "channels_last": one(lambda t, o: t["x"].contiguous(memory_format=torch.channels_last)),
    "index_select": one(lambda t, o: torch.index_select(t["x"], o["dim"], t["index"])),
    "sgd": optimize(sgd),
    "adamw": optimize(adamw),
    **more_reference.OPERATIONS,
}


def steepness(case):
    """How large the terms of a normalisation's results are: a value's rounding is multiplied by 1 / σ."""
    t, o = Arguments(case, True), case["options"]
    x = t["x"].detach()
    over = tuple(range(-len(o["shape"]), 0)) if "shape" in o else (0, 2, 3)
    if case["op"] == "rms_norm":
        var = (x * x).mean(over)
    else:
        var = x.var(over, correction=0) if o.get("training", True) and x.numel() else t["running_var"]
    inverse = 1 / torch.sqrt((torch.zeros(0) if var is None else var).clamp(min=0) + o["eps"])
    largest = {name: float(t[name].detach().abs().max()) if t[name] is not None and t[name].numel() else otherwise
               for name, otherwise in (("x", 0.0), ("weight", 1.0), ("bias", 0.0), ("residual", 0.0))}
    inverse = float(inverse.max()) if inverse.numel() else 0.0
    slope = inverse * largest["weight"]
    sizes = {"y": largest["x"] * slope + largest["bias"] + largest["residual"]}
    for seed in case["seeds"].values():
        dy = seed_of(seed, True).abs()
        others = tuple(range(x.dim() - len(o["shape"]))) if "shape" in o else (0, 2, 3)
        summed = dy.sum(others) if others else dy
        each, summed = (float(dy.max()), float(summed.max())) if dy.numel() else (0.0, 0.0)
        sizes.update({"grad x": each * slope * (1 + largest["x"] * inverse), "grad residual": each,
                      "grad bias": summed, "grad weight": summed * largest["x"] * inverse})
    return {name: torch.tensor(size, dtype=torch.float64) for name, size in sizes.items()}


def seed_sizes(case):
    """Gradients of losses are differences of terms as large as what comes from above; in attention, times the others."""
    def most(given):
        return float(make(given, True).abs().max()) if given["values"] else 0.0

    largest = max((most(seed) for seed in case["seeds"].values()), default=0)
    sizes = {name: largest for name in case["tensors"]}
    if case["op"] == "attention":
        t = {name: most(given) for name, given in case["tensors"].items()}
        score = largest * t["value"]
        sizes.update(query=score * t["key"], key=score * t["query"], mask=score)
    return {"grad " + name: torch.tensor(size, dtype=torch.float64) for name, size in sizes.items()}
