"""Trains LeNet and ResNet-18 on the emulated machine in every precision, recorded or not, with 1, 2 and 4 workers, on a GPU
each and all on one, and prints one table. Within a precision and a number of workers every way must give the same weights to
the last bit, the first losses must be the CPU's, and LeNet's and ResNet-18's in fp32 PyTorch's where it was recorded. Not part
of ctest, which runs a choice of these (emulated_training_test.cc, emulated_resnet_test.cc): minutes in all.

usage: combinations.py BUILD_DIR [MODEL[:WHAT[:WORKERS]]…]      BUILD_DIR: build/ci, with dtrain, dtrain-launch and
dtrain_cuda_emulated built; WHAT: one of fp32, bf16, fp16, pytorch (the recorded losses)
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/support"))
import golden  # noqa: E402

traces = {"lenet": ("tests/parity/golden.safetensors", "trace_lenet", 40), "resnet18": ("tests/parity/resnet/golden.safetensors", "traces", 3)}
# What is trained: PyTorch's traces need its data; ResNet-18 follows its own in emulated_resnet_test.cc (28 x 28, minutes).
recipes = {
    "lenet": ["--global-batch-size", "64", "--lr", "0.05", "--momentum", "0.9", "--max-steps", "12"],
    "resnet18": ["--dataset", "synthetic:1x8x8,10,64", "--lr", "0.001", "--max-steps", "8"],
}
# How far the first and the second loss may be from the CPU's, which rounds elsewhere, as in emulated_resnet_test.cc. ResNet-18's
# last batch norms see one value of each such small image: a worker needs four images at the least, since of two values a batch
# norm makes -1 and 1 whatever they are, and of a last bit between them everything.
bounds = {("lenet", "fp32"): (2e-6, 2e-5), ("lenet", "bf16"): (2e-2, 3e-2), ("lenet", "fp16"): (5e-3, 1e-2),
          ("resnet18", "fp32"): (1e-5, 1e-3), ("resnet18", "bf16"): (1e-1, 3e-1), ("resnet18", "fp16"): (1e-1, 3e-1)}


class Run:
    """One training run: its losses, and a hash of the weights it ended with."""

    def __init__(self, build, model, arguments, world, gpus, shared=False):
        with tempfile.TemporaryDirectory() as folder:
            program = [build / "bin/dtrain", "train"]
            # NCCL refuses two ranks on one GPU of a host; each claims a host of its own.
            own_host = ["--no-python", root / "tests/gpu/own_host.sh"] if shared else []
            launcher = [build / "bin/dtrain-launch", f"--nproc_per_node={world}", *own_host]
            command = [*launcher, *program, "--model", model, "--seed", "0", "--log-every", "1", "--eval-every", "0",
                       "--run-dir", folder + "/run", *arguments]
            env = dict(os.environ, DTRAIN_EMULATED_GPUS=str(gpus), NO_COLOR="1")
            began = time.monotonic()
            done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, timeout=900)
            self.seconds = time.monotonic() - began
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-3000:]}")
            lines = [json.loads(line) for line in open(folder + "/run/metrics.jsonl")]
            self.losses = [line["loss"] for line in lines if line.get("event") == "step"]
            newest = max(pathlib.Path(folder, "run/checkpoints").glob("*/model.safetensors"), key=os.path.getmtime)
            self.weights = hashlib.sha256(newest.read_bytes()).hexdigest()[:12]


def train(build, model, precision, world, device, graph="off", shared=False):
    arguments = [*recipes[model], "--precision", precision, "--device", device]
    if model == "resnet18":
        arguments += ["--global-batch-size", str(max(8, 4 * world))]
    if device != "cpu":
        arguments += ["--backend", "nccl", "--cuda-graph", graph, "--collective-timeout", "300"]
    return Run(build, model, arguments, world, 1 if shared else world, shared)


def compare(build, model, precision, world):
    """The rows of one precision and number of workers; how many of them are wrong."""
    cpu = train(build, model, precision, world, "cpu")
    ways = [("own", graph) for graph in ("off", "on")] + ([("one", graph) for graph in ("off", "on")] if world > 1 else [])
    first, wrong = None, 0
    for place, graph in ways:
        shared = place == "one"
        run = train(build, model, precision, world, "cuda:0" if shared else "cuda", graph, shared)
        first = first or run
        apart = [abs(a - b) for a, b in zip(run.losses, cpu.losses)][:2]
        same = run.weights == first.weights and run.losses == first.losses
        right = same and all(a <= b for a, b in zip(apart, bounds[model, precision]))
        wrong += not right
        print(f"{model:9} {precision}  {world}  {place:4} {graph:4} {run.weights}  {'same ' if same else 'OTHER'}  {apart[0]:.1e} {apart[1]:.1e}  "
              f"{run.seconds:5.1f} s  {'ok' if right else 'WRONG'}", flush=True)
    return wrong


def follow_pytorch(build, model):
    """PyTorch's recorded losses in fp32, over NCCL, recorded or not."""
    file, key, steps = traces[model]
    wrong = 0
    for number, trace in enumerate(golden.load(root / file)[key]):
        for graph in ("off", "on"):
            # Recording begins after three steps; ResNet-18 is chaotic by then.
            if model == "resnet18" and graph == "on":
                continue
            count = 15 if model == "lenet" else steps
            arguments = ["--max-steps", count, "--global-batch-size", trace["global_batch"], "--lr", trace["lr"], "--momentum",
                         trace["momentum"], "--weight-decay", trace.get("weight_decay", 0), "--device", "cuda", "--cuda-graph", graph,
                         "--collective-timeout", "600"] + (["--nesterov"] if trace.get("nesterov") else [])
            run = Run(build, model, arguments, trace["world"], trace["world"])
            apart = [abs(a - b) for a, b in zip(run.losses, trace["losses"])]
            # The bounds of the CPU's tests, which say why: tests/parity/training, tests/parity/resnet.
            limits = [2e-5 if number == 1 else 1e-5] * count if model == "lenet" else [1e-6, 5e-5, 2e-2]
            right = len(apart) == count and all(a <= b for a, b in zip(apart, limits))
            wrong += not right
            print(f"{model:9} fp32  {trace['world']}  own  {graph:4} PyTorch's trace {number}: {' '.join(f'{a:.0e}' for a in apart)}  "
                  f"{run.seconds:5.1f} s  {'ok' if right else 'WRONG'}", flush=True)
    return wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    print("model     precision, workers, GPUs (own each, or all on one), recorded, weights, as the first, from the CPU's losses, time")
    wrong = 0
    for chosen in sys.argv[2:] or list(recipes):
        model, only, workers = (chosen.split(":") + ["", ""])[:3]
        for precision in ("fp32", "bf16", "fp16"):
            for world in (1, 2, 4):
                wrong += compare(build, model, precision, world) if only in ("", precision) and workers in ("", str(world)) else 0
        wrong += follow_pytorch(build, model) if only in ("", "pytorch") else 0
    print(f"{wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
