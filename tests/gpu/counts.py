"""What a training step of LeNet, ResNet-18 and ResNet-50 asks of a GPU, counted on the emulated machine, beside what it asked
before its memory traffic was worked on (docs/decisions/030-memory-traffic-of-a-step.md), as one table. Minutes, most of them
ResNet-50's.

usage: counts.py BUILD_DIR [STEP…]      BUILD_DIR: build/ci, with dtrain and dtrain_cuda_emulated built; STEP: lenet, resnet18,
resnet18:fp16 or resnet50
"""
import json
import os
import subprocess
import sys

# model, with its precision where there are two: dataset, precision, samples of the step, and of the ones that are counted and extended; kernels and calls, GB and predicted ms of an H100 before; GB of the formulation
steps = {
    "lenet": ("synthetic:1x28x28,10,64", "fp32", 64, 64, (49, 0.035, 0.061), None),
    "resnet18": ("synthetic:1x28x28,10,64", "bf16", 256, 2, (402, 5.04, 2.04), None),
    "resnet18:fp16": ("synthetic:1x28x28,10,64", "fp16", 256, 2, (444, 13.41, 13.71), None),
    "resnet50": ("synthetic:3x224x224,1000,64", "bf16", 256, 1, (800, 111.1, 37.8), 85.3),
}


def count(build, step):
    dataset, precision, samples, counted, _, _ = steps[step]
    model = step.split(":")[0]
    command = [os.path.join(build, "bin/dtrain"), "bench", "step", "--device", "cuda", "--model", model, "--dataset", dataset, "--precision", precision,
               "--batch-size", str(counted), "--warmup", "1", "--forecast", "h100", "--forecast-batch", str(samples), "--collective-timeout", "600", "--json"]
    done = subprocess.run(command, env=dict(os.environ, DTRAIN_EMULATED_GPUS="1"), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(f"{'a step of':28} {'kernels, calls':>16} {'GB':>16} {'predicted, ms (H100)':>22} {'of the formulation':>19}")
    wrong = 0
    for step in sys.argv[2:] or list(steps):
        model, (_, precision, samples, _, before, formulation) = step.split(":")[0], steps[step]
        now = count(sys.argv[1], step)
        gigabytes = (now["read_bytes"] + now["written_bytes"]) * 1e-9
        share = "" if formulation is None else f"{before[1] / formulation:.2f} -> {gigabytes / formulation:.2f}"
        name = f"{model}, {precision}, {samples} samples"
        print(f"{name:28} {before[0]:>6} -> {now['calls']:<6.0f} {before[1]:>6.3g} -> {gigabytes:<6.3g} {before[2]:>9.3g} -> {now['predicted_ms']:<9.3g} {share:>19}", flush=True)
        wrong += formulation is not None and gigabytes > 1.15 * formulation
    sys.exit(1 if wrong else 0)


main()
