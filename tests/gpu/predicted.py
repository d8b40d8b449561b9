"""A step's time on this GPU beside what its data sheet allows for the bytes and operations counted on the emulated machine.
run.sh exports bin; both modules are built.

usage: predicted.py MODEL DATASET PRECISION BATCH
"""
import json
import os
import subprocess
import sys

model, dataset, precision, batch = sys.argv[1:5]
names = {"H100": "h100", "H200": "h200", "A100": "a100", "L4": "l4", "4090": "rtx4090"}


def bench(batch_size, **more):
    command = [os.environ["bin"] + "/dtrain", "bench", "step", "--json", "--device", "cuda", "--model", model, "--dataset", dataset,
               "--precision", precision, "--batch-size", str(batch_size)]
    for option, value in more.pop("options", {}).items():
        command += [f"--{option}", value]
    done = subprocess.run(command, env=dict(os.environ, **more), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
known = next((name for part, name in names.items() if part in gpu), "h100")
forecast = bench(1, DTRAIN_EMULATED_GPUS="1", options={"forecast": known, "forecast-batch": batch, "warmup": "1"})[-1]
measured = bench(batch)[-1]
took, least = measured["best_step_ms"], forecast["predicted_ms"]
print(f"{gpu}: {model} {precision}, {batch} samples: {took:.3f} ms measured, {least:.3f} ms at the least by the data sheet of {known}: "
      f"{took / least:.2f} times")
