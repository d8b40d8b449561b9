"""dtrain's CPU kernels beside PyTorch's: the same shapes, one thread, in turns, CPU seconds of the thread.

Prints a table of ratios (PyTorch's seconds / dtrain's: above 1 dtrain is faster), one row a kernel and one column a
size, the median over the rounds; then the geometric mean, what is below --least, the widest spread between rounds, and
the largest error of each function in units in the last place of float64's result, both of dtrain and of PyTorch.

usage: kernels.py [--program build/release/bin/kernel_times] [--sizes 1024,…] [--only NAME,…] [--rounds 5]
                  [--seconds 0.02] [--least 0] [--no-errors] [--out FILE]
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import numpy
import torch
import torch.nn.functional as F

COLUMNS = 256
aten = torch.ops.aten


def flat(count):
    return torch.empty(count).uniform_(-4, 4)


def matrix(count):
    return torch.empty(max(1, count // COLUMNS), COLUMNS).uniform_(-4, 4)


def function(name, positive=False):
    def make(count):
        x = flat(count).abs() if positive else flat(count)
        out = torch.empty_like(x)
        operation = getattr(aten, name).out
        return lambda: operation(x, out=out)
    return make


def two(operation):
    def make(count):
        a, b = flat(count), flat(count)
        out = torch.empty_like(a)
        return lambda: operation(a, b, out=out)
    return make


def reduction(operation, dims):
    def make(count):
        x = matrix(count)
        out = operation(x, dims)
        return lambda: operation(x, dims, out=out)
    return make


def conversion(source, target):
    def make(count):
        x = flat(count).to(source)
        out = torch.empty_like(x, dtype=target)
        return lambda: out.copy_(x)
    return make


def cross_entropy(backward):
    def make(count):
        x = matrix(count)
        target = torch.zeros(len(x), dtype=torch.int64)
        if not backward:
            return lambda: F.cross_entropy(x, target, reduction="none")
        log_probs = F.log_softmax(x, 1)
        losses, weight = F.nll_loss(log_probs, target, reduction="none"), torch.tensor(0.0)

        def run():
            grad = aten.nll_loss_backward(losses, log_probs, target, None, 0, -100, weight)
            return aten._log_softmax_backward_data(grad, log_probs, 1, torch.float32)
        return run
    return make


def layer_norm(backward):
    def make(count):
        x, weight, bias = matrix(count), flat(COLUMNS), flat(COLUMNS)
        if not backward:
            return lambda: aten.native_layer_norm(x, [COLUMNS], weight, bias, 1e-5)
        out, mean, rstd = aten.native_layer_norm(x, [COLUMNS], weight, bias, 1e-5)
        grad, mask = torch.empty_like(x).uniform_(-4, 4), [True, True, True]
        return lambda: aten.native_layer_norm_backward(grad, x, [COLUMNS], mean, rstd, weight, bias, mask)
    return make


def optimizer(make_optimizer):
    def make(count):
        p = torch.nn.Parameter(flat(count))
        p.grad = flat(count)
        o = make_optimizer([p])
        o.step()
        return o.step
    return make


def log_softmax(count):
    x = matrix(count)
    out = torch.empty_like(x)
    return lambda: aten._log_softmax.out(x, 1, False, out=out)


KERNELS = {
    "exp": function("exp"), "log": function("log", True), "log1p": function("log1p", True),
    "tanh": function("tanh"), "sigmoid": function("sigmoid"), "gelu": function("gelu"), "silu": function("silu"),
    "relu": function("relu"), "sqrt": function("sqrt", True),
    "add": two(torch.add), "mul": two(torch.mul),
    "sum": reduction(torch.sum, (0, 1)), "sum_rows": reduction(torch.sum, 1), "sum_columns": reduction(torch.sum, 0),
    "amax": reduction(torch.amax, (0, 1)), "amax_rows": reduction(torch.amax, 1),
    "amax_columns": reduction(torch.amax, 0),
    "log_softmax": log_softmax, "cross_entropy": cross_entropy(False), "cross_entropy_backward": cross_entropy(True),
    "layer_norm": layer_norm(False), "layer_norm_backward": layer_norm(True),
    "to_bf16": conversion(torch.float32, torch.bfloat16), "from_bf16": conversion(torch.bfloat16, torch.float32),
    "to_f16": conversion(torch.float32, torch.float16), "from_f16": conversion(torch.float16, torch.float32),
    "adamw": optimizer(lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True)),
    "sgd": optimizer(lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, fused=True)),
}

FUNCTIONS = {
    "exp": torch.exp, "log": torch.log, "log1p": torch.log1p, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "gelu": F.gelu, "silu": F.silu,
}


def seconds_of(call, budget):
    """As kernel_times does it: the least of batches that the clock can see."""
    call()
    batch, done, least = 1, 0, math.inf
    end = time.thread_time() + budget
    while done < 5 or time.thread_time() < end:
        start = time.thread_time()
        for _ in range(batch):
            call()
        taken = time.thread_time() - start
        if taken < 2e-4:
            batch *= 2
            continue
        least = min(least, taken / batch)
        done += 1
    return least


def compare(program, name, size, options):
    """Seconds a call, dtrain's and PyTorch's of each round."""
    call = KERNELS[name](size // 4)
    ours, theirs = [], []
    for round_ in range(options.rounds):
        def dtrain():
            text = subprocess.run([program, name, str(size), str(options.seconds)], check=True, capture_output=True,
                                  text=True, env=dict(os.environ, OMP_NUM_THREADS="1")).stdout
            ours.append(float(text))

        def torch_():
            theirs.append(seconds_of(call, options.seconds))
        for turn in (dtrain, torch_) if round_ % 2 == 0 else (torch_, dtrain):
            turn()
    return ours, theirs


def largest_error(name, x, y):
    """In last places of the exact result; gelu's and silu's in those of x where x is larger, for 1 + erf cancels."""
    wide = torch.from_numpy(x).double()
    exact = (wide * 0.5 * torch.erfc(-wide / math.sqrt(2)) if name == "gelu" else FUNCTIONS[name](wide)).numpy()
    with numpy.errstate(all="ignore"):
        scale = numpy.maximum(abs(exact), abs(x.astype(numpy.float64))) if name in ("gelu", "silu") else abs(exact)
        use = numpy.isfinite(exact) & (scale > 2.0**-126) & (abs(exact) < 3.4e38) & numpy.isfinite(x)
        _, exponent = numpy.frexp(scale[use])
        errors = abs(y[use].astype(numpy.float64) - exact[use]) / numpy.ldexp(1.0, exponent - 24)
    return float(numpy.max(errors))


def print_errors(program, names):
    every = 4093
    bits = (numpy.arange(2**32 // every, dtype=numpy.uint64) * every).astype(numpy.uint32)
    x = bits.view(numpy.float32)
    print("\nlargest error, units in the last place  dtrain  PyTorch")
    for name in (n for n in FUNCTIONS if n in names):
        raw = subprocess.run([program, "values", name], check=True, capture_output=True).stdout
        theirs = FUNCTIONS[name](torch.from_numpy(x.copy())).numpy()
        ours = numpy.frombuffer(raw, dtype=numpy.float32)
        print(f"{name:38}  {largest_error(name, x, ours):6.3f}  {largest_error(name, x, theirs):7.3f}")


def label(size):
    return f"{size // 1024} KiB" if size < 2**20 else f"{size // 2**20} MiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(os.environ.get("DTRAIN_BIN", "build/release/bin"), "kernel_times"))
    parser.add_argument("--sizes", default="1024,16384,262144,4194304,67108864", help="bytes of an f32 array")
    parser.add_argument("--only", default=",".join(KERNELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="a kernel's in a round")
    parser.add_argument("--least", type=float, default=0.0, help="fail where a ratio is below")
    parser.add_argument("--no-errors", action="store_true")
    parser.add_argument("--out", help="every figure, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    sizes, names = [int(s) for s in options.sizes.split(",")], options.only.split(",")
    print(f"PyTorch {torch.__version__}, {options.rounds} rounds, one thread; PyTorch's CPU seconds / dtrain's")
    print(f"{'':24}" + "".join(f"{label(s):>10}" for s in sizes), flush=True)
    ratios, figures, spread = {}, {}, 0.0
    for name in names:
        print(f"{name:24}", end="", flush=True)
        for size in sizes:
            ours, theirs = compare(options.program, name, size, options)
            each = [b / a for a, b in zip(ours, theirs)]
            ratios[name, size] = statistics.median(each)
            spread = max(spread, max(each) / min(each))
            figures[f"{name} {size}"] = {"dtrain": ours, "pytorch": theirs}
            print(f"{ratios[name, size]:10.2f}", end="", flush=True)
        print()
    mean = math.exp(statistics.fmean(math.log(r) for r in ratios.values()))
    print(f"\ngeometric mean {mean:.2f}; widest spread of a ratio between rounds {spread:.2f} times")
    low = [f"{n} at {label(s)} {r:.2f}" for (n, s), r in sorted(ratios.items(), key=lambda item: item[1]) if r < 0.9]
    print("below 0.9: " + (", ".join(low) or "none"))
    if not options.no_errors:
        print_errors(options.program, names)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "ratios": {f"{n} {s}": r for (n, s), r in ratios.items()},
                       "geometric_mean": mean, "seconds": figures}, file, indent=1)
    return 0 if min(ratios.values()) >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
