"""PyTorch's side of the table: what each operation is there, and how a case is run."""
import torch
import torch.nn.functional as F
from torch.optim import _muon
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_avg_fn

import composed_reference
import layer_reference
import more_reference
from more_reference import REDUCTIONS, one

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32,
          "uint8": torch.uint8, "float": torch.float32}
FIRST_SEED, FIRST_RESULT_SEED = 7, 1000  # of what is drawn, as in case.cc


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
        for place, name in enumerate(sorted(case["tensors"])):
            given = as_described(case, case["tensors"][name])
            if given is None:
                continue
            base = make(given, wide, FIRST_SEED + place)
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


def as_described(case, given):
    """A list of extents is a drawn leaf; what is drawn has the case's range where it has none of its own."""
    if isinstance(given, list):
        given = {"shape": given, "grad": True}
    return given and {"dtype": "float32", "range": case.get("range", [-1, 1]), **given}


def draw(shape, seed, low, high):
    torch.manual_seed(seed)
    return torch.empty(shape).uniform_(low, high)


def make(given, wide, seed=None):
    dtype = DTYPES[given["dtype"]]
    if "values" not in given:
        values = draw(given["shape"], seed, *given["range"])
        return values.double() if wide else values.to(dtype)
    number = float if dtype.is_floating_point else int
    values = torch.tensor([number(v) for v in given["values"].split()],
                          dtype=torch.int64 if number is int else torch.float64)
    if wide and dtype.is_floating_point:
        dtype = torch.float64
    return values.to(dtype).reshape(given["shape"])


def run(case, wide, changed=None):
    """Results by name, as the table has them; `wide`: floats as float64; `changed`: the argument or result that is
    written to in place between forward and backward. Throws what PyTorch throws."""
    arguments = Arguments(case, wide, changed is not None)
    results = OPERATIONS[case["op"]](arguments, case.get("options", {}))
    values = {name: tensor.detach().clone() for name, tensor in results.items()}
    if changed is not None:
        with torch.no_grad():
            (arguments.bases[changed] if changed in arguments.bases else results[changed].detach()).fill_(1)
    for place, (name, result) in enumerate(results.items()):
        if result.requires_grad and ("seeds" not in case or name in case["seeds"]):
            seed = seed_of(case["seeds"][name], wide) if "seeds" in case else \
                draw(result.shape, FIRST_RESULT_SEED + place, -1, 1).to(result.dtype)
            result.backward(seed, retain_graph=True)
    for name, base in sorted(arguments.bases.items()):
        if base.grad is not None:
            values["grad " + name] = base.grad
    return values


def activated(y, options):
    return torch.relu(y) if options.get("relu") else y


def like_x(bias, x):
    """A bias may be float32 beside bfloat16 activations; PyTorch has them in one dtype."""
    return None if bias is None else bias.to(x.dtype)


def window(o):
    return o.get("stride", 1), o.get("padding", 0), o.get("dilation", 1), o.get("groups", 1)


def conv(t, o):
    # PyTorch's float64 loops refuse a stepped weight in backward.
    weight = t.dense("weight") if t["weight"].dtype == torch.float64 else t["weight"]
    return F.conv2d(t["x"], weight, like_x(t["bias"], t["x"]), *window(o))


def pool(x, o):
    function = F.max_pool2d if o.get("max") else F.avg_pool2d
    kernel = o.get("kernel", 2)
    return function(x, kernel, o.get("pool_stride", kernel), o.get("pool_padding", 0))


def batch_norm(t, o):
    # Dense: where strides fit two layouts (N = W = 1), PyTorch 2.15 adds up the wrong gradients for weight and bias,
    # and takes a stepped weight and expanded statistics for dense ones in the backward pass of evaluation.
    mean, var = t["running_mean"], t["running_var"]
    if not o.get("training"):
        mean, var = t.dense("running_mean"), t.dense("running_var")
    x = torch.cat((t["x"], t["x"])) if o.get("peers") else t.dense("x")  # the other worker has the same samples
    y = F.batch_norm(x, mean, var, t.dense("weight"), t["bias"], o.get("training", False), o.get("momentum", 0.1),
                     o.get("eps", 1e-5))[:t["x"].size(0)]
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
    return one(lambda t, o: function(t["x"], o.get("dims") or tuple(range(t["x"].dim())), keepdim=o.get("keep", False))
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
    return torch.optim.SGD(parameters, o.get("lr", 0.1), o.get("momentum", 0), o.get("dampening", 0),
                           o.get("weight_decay", 0), o.get("nesterov", False), foreach=False)


def adam(kind):
    return lambda parameters, o: kind(parameters, o["lr"], (o.get("beta1", 0.9), o.get("beta2", 0.999)),
                                      o.get("eps", 1e-8), o.get("weight_decay", 0), foreach=False)


def rmsprop(parameters, o):
    return torch.optim.RMSprop(parameters, o["lr"], o.get("alpha", 0.99), o.get("eps", 1e-8), o.get("weight_decay", 0),
                               o.get("momentum", 0), o.get("centered", False), foreach=False)


def adagrad(parameters, o):
    return torch.optim.Adagrad(parameters, 0.1, o.get("lr_decay", 0), o.get("weight_decay", 0), o.get("initial", 0),
                               foreach=False)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023: PyTorch has none."""
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p.data))
                direction = torch.sign(beta1 * average + (1 - beta1) * p.grad)
                p.data.sub_(lr * (direction + group["weight_decay"] * p.data))
                average.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def lion(parameters, o):
    return Lion(parameters, dict(lr=o.get("lr", 0.1), betas=(o.get("beta1", 0.9), o.get("beta2", 0.99)),
                                 weight_decay=o.get("weight_decay", 0)))


def orthogonalized(grad, coefficients, steps, eps):
    """torch.optim.Muon's iteration, without the rounding to bfloat16."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


def muon(t, o):
    if not o.get("adapts", True):
        return optimize(lambda parameters, _: torch.optim.AdamW(parameters, o.get("lr", 0.1), (0.9, 0.95),
                                                                weight_decay=o.get("weight_decay", 0)))(t, o)
    scale, shape = ("original", "match_rms_adamw", "spectral_unclamped")[o.get("scale", 0)], t.bases["p"].shape
    for tensors in (t, t.bases):  # PyTorch takes matrices alone
        tensors.update({name: tensor.flatten(1) for name, tensor in tensors.items()})

    def make(parameters, o):
        return torch.optim.Muon(parameters, o.get("lr", 0.1), o.get("weight_decay", 0), o.get("momentum", 0.95),
                                o.get("nesterov", True), adjust_lr_fn=scale)
    original, _muon._zeropower_via_newtonschulz = _muon._zeropower_via_newtonschulz, orthogonalized
    try:
        return {"p": optimize(make)(t, o)["p"].reshape(shape)}
    finally:
        _muon._zeropower_via_newtonschulz = original


def weight_average(t, o):
    """What torch.optim.swa_utils.AveragedModel keeps of a module whose parameter is p, then g0, g1, …"""
    holder = torch.nn.ParameterList([torch.nn.Parameter(t.bases["p"].detach().clone())])
    # Of a mean not get_swa_multi_avg_fn(), whose share of the new weights is rounded to float32.
    rule = ({"avg_fn": get_swa_avg_fn()} if o.get("mean") else
            {"multi_avg_fn": get_ema_multi_avg_fn(o.get("decay", 0.9))})
    average = AveragedModel(holder, **rule, use_buffers=True)
    average.update_parameters(holder)
    i = 0
    while t[f"g{i}"] is not None:
        with torch.no_grad():
            holder[0].copy_(t[f"g{i}"])
        average.update_parameters(holder)
        i += 1
    return {"p": average.module[0]}


def finite(t):
    return bool(t["x"].isfinite().all() and t["z"].isfinite().all())


def unscale(t, _):
    scale = 2048.0 if finite(t) else 512.0  # of 1024: grown after a step, or halved
    return {"y": t["x"] / 1024, "z": t["z"] / 1024, "scale": torch.tensor(scale)}


def compare(function):
    return one(lambda t, o: function(t["a"], t["b"]).to(t["a"].dtype))


OPERATIONS = {
    **{name: one(lambda t, o, f=getattr(torch, name): f(t["x"]))
       for name in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "relu", "sigmoid", "tanh", "sin", "cos",
                    "erf", "expm1", "log1p", "floor", "ceil", "round", "trunc", "sign")},
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
    "argmax": one(lambda t, o: torch.argmax(t["x"], o.get("dim", -1), o.get("keep", False))),
    "softmax": one(lambda t, o: torch.softmax(t["x"], o.get("dim", -1))),
    "log_softmax": one(lambda t, o: torch.log_softmax(t["x"], o.get("dim", -1))),
    "cross_entropy": one(lambda t, o: F.cross_entropy(t["x"], t["target"], reduction=REDUCTIONS[o["reduction"]],
                                                      ignore_index=o.get("ignore", -10**9))),
    "mse_loss": one(lambda t, o: F.mse_loss(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]])),
    "matmul": one(lambda t, o: torch.matmul(t["a"], t["b"])),
    "linear": one(lambda t, o: activated(F.linear(t["x"], t["weight"], like_x(t["bias"], t["x"])), o)),
    "conv2d": one(lambda t, o: activated(conv(t, o), o)),
    "conv2d_shortcut": one(lambda t, o: conv(t, o) + 3 * t["x"]),
    "pool2d": one(lambda t, o: pool(t["x"], o)),
    "max_pool2d": one(lambda t, o: F.max_pool2d(t["x"], 2)),
    "avg_pool2d": one(lambda t, o: F.avg_pool2d(t["x"], 2)),
    "conv2d_relu_pool2d": one(lambda t, o: pool(torch.relu(conv(t, o)), o)),
    "adaptive_avg_pool2d": one(lambda t, o: F.adaptive_avg_pool2d(t["x"], o["size"])),
    "batch_norm": batch_norm,
    "copy": one(lambda t, o: t["x"].clone()),
    "reshape": one(lambda t, o: t["x"].reshape(o["shape"])),
    "flatten": one(lambda t, o: t["x"].flatten(o.get("dim", 1))),
    "sum_to": one(lambda t, o: t["x"].sum_to_size(o["shape"])),
    "channels_last": one(lambda t, o: t["x"].contiguous(memory_format=torch.channels_last)),
    "index_select": one(lambda t, o: torch.index_select(t["x"], o.get("dim", 0), t["index"])),
    "sgd": optimize(sgd),
    "adam": optimize(adam(torch.optim.Adam)),
    "adamw": optimize(adam(torch.optim.AdamW)),
    "rmsprop": optimize(rmsprop),
    "adagrad": optimize(adagrad),
    "lion": optimize(lion),
    "muon": muon,
    "weight_average": weight_average,
    "unscale": unscale,
    "find_not_finite": one(lambda t, o: torch.tensor([0.0 if finite(t) else 1.0])),
    "pixels": one(lambda t, o: t["x"].float() / 255),
    "linear_fp16": one(lambda t, o: F.linear(t["x"], t["weight"], t["bias"])),
    **more_reference.OPERATIONS,
    **layer_reference.OPERATIONS,
    **composed_reference.OPERATIONS,
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
    if case["op"] == "scaled_dot_product_attention":
        t = {name: most(given) for name, given in case["tensors"].items()}
        score = largest * t["value"]
        sizes.update(query=score * t["key"], key=score * t["query"], mask=score)
    if case["op"] == "packed_attention":
        given = case["tensors"]["qkv"]  # what is expanded gets a sum of gradients
        times = seed_of(given, True).numel() / max(len(given["values"].split()), 1)
        sizes["qkv"] *= max(1, most(given)) ** 2 * max(1, times)
    return {"grad " + name: torch.tensor(size, dtype=torch.float64) for name, size in sizes.items()}
