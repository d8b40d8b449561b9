"""What all.py compares: each comparison has a name, the unit of its times, and measures all its sides once, in an order
that turns from round to round."""
import functools
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("DTRAIN_BIN", ROOT / "build/release/bin")).resolve()
os.environ["DTRAIN_BIN"] = str(BIN)
LLMC = os.environ.get("DTRAIN_LLMC")  # a checkout of llm.c, whose program for CPUs is compared with then
FASHION = "/usr/share/datasets/fashion-mnist"


def has_torch():
    return importlib.util.find_spec("torch") is not None


def in_turns(sides, number):
    """{side: what it gives}, the first of them another one each round."""
    names = list(sides)
    turn = number % len(names)
    values = {name: sides[name]() for name in names[turn:] + names[:turn]}
    return {name: values[name] for name in names}


@dataclass
class Comparison:
    """`sides`: (folder, round) -> {side: () -> its time}; `needs`: (is it here?, what is missing) of what it cannot do without."""

    name: str
    unit: str
    sides: object
    needs: list = field(default_factory=list)

    def missing(self):
        return ", ".join(what for is_here, what in self.needs if not is_here())

    def measure(self, number, folder):
        return in_turns(self.sides(folder, number), number)


# ---- processes


def milliseconds(command, hangs_at_times=False):
    """Of a command that must end within a minute; one that is known to hang at times gets two more tries, each named, and
    is NaN when it hangs every time."""
    for _ in range(3 if hangs_at_times else 1):
        begin, limit = time.monotonic(), 20 if hangs_at_times else 60
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"{' '.join(command)}: expected an end within {limit} s, ended it", file=sys.stderr)
            continue
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nended with code {done.returncode}:\n{done.stderr.decode(errors='replace')[-2000:]}")
        return 1e3 * (time.monotonic() - begin)
    if not hangs_at_times:
        raise SystemExit(1)
    return math.nan


def start(workers):
    def sides(*_):
        forks = f"for ((i = 0; i < {workers}; ++i)); do /bin/true & done; wait"
        commands = {"dtrain": [str(BIN / "dtrain-launch"), f"--nproc_per_node={workers}", "/bin/true"],
                    "bare forks": ["bash", "-c", forks]}
        if shutil.which("mpirun"):
            commands["mpirun"] = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(workers), "/bin/true"]
        if has_torch() and workers <= 8:
            commands["torchrun"] = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                                    f"--nproc_per_node={workers}", "/bin/true"]
        # mpirun has been seen to hang with 64 workers and more.
        return {side: lambda side=side, command=command: milliseconds(command, hangs_at_times=side == "mpirun")
                for side, command in commands.items()}
    return Comparison(f"start and end of {workers} processes", "ms", sides)


# ---- collectives


@functools.cache
def reduced(backend, _):
    """By size in bytes, microseconds of the library alone and through dtrain, which were in turns; once a round."""
    program = str(BIN / "bench_allreduce")
    alone = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", program, "mpi"]
    text = subprocess.run(alone if backend == "mpi" else [program, backend, "2"], check=True, capture_output=True, text=True,
                          timeout=900).stdout
    rows = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    return {int(row[0]): (float(row[1]), float([v for v in row if not v.endswith("%")][-1])) for row in rows}


def all_reduce(backend, size, label):
    def sides(_, number):
        theirs, ours = reduced(backend, number)[size]
        return {"dtrain": lambda: ours, label: lambda: theirs}
    return Comparison(f"all-reduce of {size >> 10} KiB beside {label}, 2 ranks", "µs", sides,
                      [((BIN / "bench_allreduce").exists, "bench_allreduce is not built: -DDTRAIN_BUILD_BENCHMARKS=ON"),
                       (lambda: backend != "mpi" or shutil.which("mpirun"), "no mpirun")])


# ---- training


TORCH = [(has_torch, "this Python has no torch")]


def pictures(model, precision, batch, steps, warm_up):
    """Two workers of one thread, beside DDP under torchrun."""
    def sides(folder, _):
        import compare
        import programs

        same = (model, precision, compare.LEARNING_RATE[model])
        channels = ["--channels-last"] if model == "resnet18" else []
        def step_of(program):
            where = tempfile.mkdtemp(dir=folder)
            run = programs.run(program, batch, steps, 5, 0, f"{where}/run")
            return 1e3 * batch / run.images_per_second(batch, warm_up)
        return {"dtrain": lambda: step_of(programs.dtrain(FASHION, [], *same)),
                "PyTorch DDP": lambda: step_of(programs.pytorch("PyTorch DDP", FASHION, channels, *same))}
    return Comparison(f"a step of {model}, {precision}, 2 workers, batch {batch}", "ms", sides,
                      TORCH + [(Path(FASHION).exists, "no Fashion-MNIST: apt install dataset-fashion-mnist")])


def first_step():
    def sides(folder, _):
        import programs

        def seconds(program):
            where = tempfile.mkdtemp(dir=folder)
            return 1e3 * programs.run(program, 256, 1, 1, 0, f"{where}/run").first_step_seconds()
        return {"dtrain": lambda: seconds(programs.dtrain(FASHION, [])),
                "PyTorch DDP": lambda: seconds(programs.pytorch("PyTorch DDP", FASHION, []))}
    return Comparison("from launch to the first finished step of lenet, 2 workers", "ms", sides,
                      TORCH + [(Path(FASHION).exists, "no Fashion-MNIST: apt install dataset-fashion-mnist")])


# Width, heads and layers.
GPT, GPT2, CHARACTERS = (256, 8, 4), (768, 12, 12), (128, 4, 4)
NAMES = {GPT: "a GPT of 4 layers, width 256", GPT2: "GPT-2 124M", CHARACTERS: "a GPT of 4 layers, width 128 (nanoGPT's for CPUs)"}


def text(precision, shape, context, batch, steps, kinds):
    def sides(folder, _):
        import random

        import transformer

        width, heads, layers = shape
        a = Namespace(precision=precision, width=width, heads=heads, layers=layers, context=context, batch=batch, steps=steps,
                      gpt2=shape == GPT2, cpu=False, device="cpu", warm_up=transformer.WARM_UP["cpu"])
        random.seed(1)
        (folder / "text").write_bytes(bytes(97 + int(26 * random.random() * random.random()) for _ in range(65536)))

        def milliseconds_of(command):
            return 1e3 * transformer.measure(a, command, str(folder))[0]
        found = {"dtrain": lambda: milliseconds_of(lambda run_dir, count: transformer.dtrain_command(a, str(folder), run_dir, count))}
        for kind in kinds:
            found[f"PyTorch {kind}"] = lambda kind=kind: milliseconds_of(
                lambda run_dir, count: transformer.peer_command(a, kind, str(folder), run_dir, count))
        if LLMC and a.gpt2 and precision == "fp32":
            llmc = transformer.Llmc(LLMC, str(folder))
            found["llm.c"] = lambda: milliseconds_of(lambda run_dir, count: llmc.command(a, run_dir, count))
        return found
    return Comparison(f"a step of {NAMES[shape]}, {precision}, {batch} × {context} tokens, one thread", "ms", sides, TORCH)


# ---- kernels


def kernels(size):
    """All kernels of one size: the geometric mean of their times."""
    program = BIN / "kernel_times"

    def sides(*_):
        import kernels as peer
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        names = list(peer.KERNELS)
        environment = dict(os.environ, OMP_NUM_THREADS="1")

        def ours(name):
            return float(subprocess.run([program, name, str(size), "0.02"], check=True, capture_output=True, text=True, env=environment).stdout)

        def mean(seconds_of):
            return 1e6 * math.exp(sum(math.log(seconds_of(name)) for name in names) / len(names))
        return {"dtrain": lambda: mean(ours),
                "PyTorch": lambda: mean(lambda name: peer.seconds_of(peer.KERNELS[name](size // 4), 0.02))}
    return Comparison(f"CPU kernels on {size >> 10} KiB, geometric mean, one thread", "µs", sides,
                      TORCH + [(program.exists, "kernel_times is not built: -DDTRAIN_BUILD_BENCHMARKS=ON")])


ALL = [start(1), start(8), start(64), first_step(),
       pictures("lenet", "fp32", 256, 60, 20), pictures("lenet", "bf16", 256, 60, 20),
       pictures("resnet18", "fp32", 64, 15, 5), pictures("resnet18", "bf16", 64, 15, 5),
       text("fp32", CHARACTERS, 64, 12, 40, ["eager", "compiled"]),
       text("fp32", GPT, 256, 8, 10, ["eager", "compiled"]), text("bf16", GPT, 256, 8, 10, ["eager", "compiled"]),
       text("fp32", GPT2, 256, 4, 5, ["eager"]), text("bf16", GPT2, 256, 4, 5, ["eager"]),
       kernels(16 << 10), kernels(1 << 20),
       all_reduce("gloo", 65536, "Gloo"), all_reduce("gloo", 4 << 20, "Gloo"),
       all_reduce("mpi", 65536, "Open MPI"), all_reduce("mpi", 4 << 20, "Open MPI")]


def versions():
    found = {"Python": sys.version.split()[0]}
    if has_torch():
        import torch

        found["PyTorch"] = torch.__version__
    if shutil.which("mpirun"):
        found["Open MPI"] = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split()[-1]
    return found
