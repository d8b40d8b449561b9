"""Attention of float32 on this GPU beside PyTorch's: forward and backward of [8, 12, 1024, 64], causal, in ms, as a step of GPT-2
124M has them; how far both are from float64; and that step in fp32 and tf32. run.sh exports bin, build, here and logs. 3 minutes.

usage: attention_speed.py [--precisions fp32,tf32] [--steps 30]
Errors: the root mean square by that of what is right; the largest of the output and the three gradients.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

SHAPE, LAYERS = (8, 12, 1024, 64), 12
HERE, LOGS, BUILD = (Path(os.environ[name]) for name in ("here", "logs", "build"))


def milliseconds(work, repeats=20):
    """The median, by events."""
    times = []
    for _ in range(repeats + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[3:])


def times_of_pytorch():
    """(forward, backward)"""
    inputs = [torch.randn(SHAPE, device="cuda", requires_grad=True) for _ in range(3)]
    output = F.scaled_dot_product_attention(*inputs, is_causal=True)
    slope = torch.randn_like(output)
    with torch.no_grad():
        forward = milliseconds(lambda: F.scaled_dot_product_attention(*inputs, is_causal=True))
    return forward, milliseconds(lambda: torch.autograd.grad(output, inputs, slope, retain_graph=True))


def error_of_pytorch(queries, keys):
    """The measure of the test GpuAttention.Float32OnMatrixUnitsIsFloat32, on numbers of the same distribution."""
    torch.manual_seed(7)
    rows = [torch.randn(1, 1, count, 64, device="cuda") for count in (queries, keys, keys, queries)]

    def attend(dtype):
        *inputs, slope = (row.to(dtype) for row in rows)
        inputs = [tensor.requires_grad_() for tensor in inputs]
        output = F.scaled_dot_product_attention(*inputs)
        return [output.detach(), *torch.autograd.grad(output, inputs, slope)]

    return max(((got.double() - right).square().sum() / right.square().sum()).sqrt().item()
               for got, right in zip(attend(torch.float32), attend(torch.float64)))


def errors_of_dtrain():
    """{name of a property of the tests of attention: its value}, after all of them have passed."""
    found = LOGS / "attention.json"
    subprocess.run([BUILD / "tests/gpu_kernels", "--gtest_filter=GpuAttention.*", "--gtest_brief=1", f"--gtest_output=json:{found}"],
                   check=True)
    tests = json.loads(found.read_text())["testsuites"][0]["testsuite"]
    return {name: value for test in tests for name, value in test.items() if "_error" in name}


def times_of_dtrain(precision):
    """(forward, backward) of a layer of GPT-2 124M."""
    random.seed(1)
    (LOGS / "letters").write_bytes(bytes(97 + int(26 * random.random() * random.random()) for _ in range(65536)))
    said = subprocess.run(
        ["bash", HERE / "kernel_times.sh", f"attention-{precision}", "--model", "gpt2", "--dataset", f"text:letters,context={SHAPE[2]}",
         "--data-dir", LOGS, "--batch-size", str(SHAPE[0]), "--optimizer", "adamw", "--precision", precision],
        check=True, capture_output=True, text=True).stdout
    print(said)
    forward = backward = 0.0
    for name, calls, time in re.findall(r"^(\w+)<?.*? +(\d+) +([\d.]+) +[\d.]+ +[\d.]+%$", said, re.M):
        if name in ("attention_tile_kernel", "attention_kernel"):
            forward += float(time)
        elif name in ("delta_kernel", "query_gradient_tile_kernel", "key_gradient_tile_kernel", "query_gradient_kernel", "key_gradient_kernel"):
            backward += float(time)
        else:
            continue
        if int(calls) != LAYERS:
            sys.exit(f"attention_speed.py: {name}: expected {LAYERS} calls in a step, got {calls}")
    if not forward or not backward:
        sys.exit("attention_speed.py: no kernels of attention in the step that kernel_times.sh has printed above")
    return forward / LAYERS, backward / LAYERS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", default="fp32,tf32")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    precisions = options.precisions.split(",")
    lines = [f"{'attention ' + str(list(SHAPE)) + ', causal':44} {'forward ms':>10} {'backward ms':>11}"]
    errors = errors_of_dtrain()
    for precision in precisions:
        lines.append("{:44} {:10.3f} {:11.3f}".format(f"dtrain {precision}, in a step of GPT-2", *times_of_dtrain(precision)))
    lines.append("{:44} {:10.3f} {:11.3f}".format(f"PyTorch {torch.__version__} fp32", *times_of_pytorch()))
    lines += [f"{name:44} {value}" for name, value in errors.items()]
    lines += [f"{f'PyTorch, {queries} queries, {keys} keys: error':44} {error_of_pytorch(queries, keys):.3e}"
              for queries, keys in ((32, 1024), (512, 48))]
    for precision in precisions:
        lines += subprocess.run(
            [sys.executable, HERE.parent / "bench/peer/transformer.py", "--device", "cuda", "--gpt2", "--context", str(SHAPE[2]),
             "--batch", str(SHAPE[0]), "--steps", str(options.steps), "--rounds", "1", "--precision", precision],
            check=True, capture_output=True, text=True, env=dict(os.environ, DTRAIN_BIN=os.environ["bin"])).stdout.splitlines()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
