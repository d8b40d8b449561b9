"""A small GPT beside PyTorch, one process of one thread each, in turns: the median time of a training step, without the first
ones, and the peak memory. AdamW, bytes, causal attention. A busy machine makes these figures worthless.

usage: transformer.py [--precision fp32|tf32|bf16] [--width 256] [--heads 8] [--layers 4] [--context 256] [--batch 8] [--steps 14]
                      [--warm-up 2] [--rounds 3] [--compile] [--gpt2 [--llmc FOLDER]] [--cpu] [--device cpu|cuda]
  --gpt2   GPT-2 of 124 M parameters (50,257 words, 12 layers) instead; the context and the batch as they are given
  --llmc   a checkout of llm.c: its program for CPUs, built here with -Ofast -march=native as its Makefile does; fp32
  --cpu    CPU seconds instead of seconds, for a machine that is busy: those of all steps less those of the first ones
  --warm-up N: the first steps, which are not counted: 2, on a GPU 12
  --device cuda: on the GPU, its memory; PyTorch's steps are timed by events, with the fused AdamW, and wait for nothing
DTRAIN_BIN: where dtrain is (default build/release/bin). Run it with a Python that has torch.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WARM_UP = {"cpu": 2, "cuda": 12}  # steps that are not counted


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    for name, value in (("width", 256), ("heads", 8), ("layers", 4), ("context", 256), ("batch", 8), ("steps", 14), ("rounds", 3)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--warm-up", type=int, help="steps that are not counted")
    p.add_argument("--gpt2", action="store_true", help="GPT-2 of 124 M parameters")
    p.add_argument("--llmc", metavar="FOLDER", help="also llm.c's program for CPUs, from this checkout")
    p.add_argument("--cpu", action="store_true", help="CPU seconds instead of seconds")
    p.add_argument("--compile", action="store_true", help="also PyTorch with torch.compile")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--peer", choices=["eager", "compiled"], help=argparse.SUPPRESS)  # this process is PyTorch's run
    p.add_argument("--text", help=argparse.SUPPRESS)
    p.add_argument("--run-dir", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.gpt2:
        a.width, a.heads, a.layers = 768, 12, 12
    if a.warm_up is None:
        a.warm_up = WARM_UP[a.device]
    if a.llmc and not (a.gpt2 and a.device == "cpu"):
        p.error("--llmc: expected --gpt2 on the CPU, which is what its program trains")
    if a.precision == "tf32" and a.device == "cpu":
        p.error("--precision tf32: expected --device cuda, whose units round so")
    least = 1 if a.peer else a.warm_up + (1 if a.cpu else 2)  # between two times of the log lies a step
    if a.steps < least or a.warm_up < 1 or a.rounds < 1:
        p.error(f"expected at least {least} steps, one of warm-up and one round")
    return a


def train_peer(a):
    """PyTorch's run: the network of models/text/transformer.h, with scaled_dot_product_attention."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(a.width), nn.LayerNorm(a.width)
            self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
            self.up, self.down = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)

        def forward(self, x):
            heads = self.qkv(self.norm1(x)).view(*x.shape[:2], a.heads, 3, -1).permute(3, 0, 2, 1, 4)
            attended = F.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh" if a.gpt2 else "none"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            words, places = (50257, 1024) if a.gpt2 else (256, a.context)
            self.words, self.places = nn.Embedding(words, a.width), nn.Embedding(places, a.width)
            self.blocks = nn.Sequential(*[Block() for _ in range(a.layers)])
            self.norm, self.head = nn.LayerNorm(a.width), nn.Linear(a.width, words, bias=False)
            if a.gpt2:
                self.head.weight = self.words.weight

        def forward(self, tokens):
            return self.head(self.norm(self.blocks(self.words(tokens) + self.places.weight[: tokens.shape[1]])))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if a.precision == "tf32" else "highest")
    text = torch.frombuffer(bytearray(Path(a.text).read_bytes()), dtype=torch.uint8).long()
    net = Gpt().to(a.device)
    step_of = torch.compile(net) if a.peer == "compiled" else net
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, fused=a.device == "cuda")
    ends = []
    for _ in range(a.steps):
        starts = torch.randint(len(text) - a.context - 1, (a.batch,)).tolist()
        tokens = torch.stack([text[s : s + a.context + 1] for s in starts])
        if a.device == "cuda":
            tokens = tokens.pin_memory().to(a.device, non_blocking=True)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = F.cross_entropy(step_of(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if a.device == "cuda":
            ends.append(torch.cuda.Event(enable_timing=True))
            ends[-1].record()
        else:
            loss.item()
            ends.append(time.time())
    memory = 0
    if a.device == "cuda":
        torch.cuda.synchronize()
        ends = [ends[0].elapsed_time(end) / 1e3 for end in ends]
        memory = torch.cuda.max_memory_allocated()
    Path(a.run_dir, "metrics.jsonl").write_text(
        "\n".join(json.dumps({"event": "step", "time": end, "peak_allocated_bytes": memory}) for end in ends))


def dtrain_command(a, folder, run_dir, steps):
    small = ["transformer", "--width", str(a.width), "--heads", str(a.heads), "--layers", str(a.layers)]
    return [str(Path(os.environ.get("DTRAIN_BIN", "build/release/bin")) / "dtrain"), "train", "--model", *(["gpt2"] if a.gpt2 else small),
            "--dataset", f"text:text,context={a.context}", "--data-dir", folder,
            "--batch-size", str(a.batch), "--max-steps", str(steps), "--optimizer", "adamw", "--lr", "1e-3", "--precision", a.precision,
            "--device", a.device, "--threads", "1", "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "0",
            "--resume", "never", "--run-dir", run_dir]


def peer_command(a, kind, folder, run_dir, steps):
    shape = [f"--{name}={getattr(a, name)}" for name in ("width", "heads", "layers", "context", "batch", "precision", "device")]
    return [sys.executable, __file__, "--peer", kind, "--text", f"{folder}/text", f"--steps={steps}", "--run-dir", run_dir, *shape,
            *["--gpt2"] * a.gpt2]


class Llmc:
    """llm.c's program and its files: weights drawn at random, which time does not hang on, and the text's bytes as tokens."""

    def __init__(self, checkout, folder):
        import numpy

        self.program, self.weights, self.tokens = (f"{folder}/{name}" for name in ("llmc", "gpt2.bin", "tokens.bin"))
        flags = ["-Ofast", "-march=native", "-fopenmp", "-DOMP"]
        subprocess.run(["cc", *flags, "-I", checkout, str(Path(__file__).with_name("llmc.c")), "-o", self.program, "-lm"], check=True)
        context, words, padded, layers, heads, width = 1024, 50257, 50304, 12, 12, 768
        header = numpy.zeros(256, numpy.int32)
        header[:8] = 20240326, 3, context, words, layers, heads, width, padded
        draw = numpy.random.default_rng(0).standard_normal
        block = [width, width, 3 * width**2, 3 * width, width**2, width, width, width, 4 * width**2, 4 * width, 4 * width**2, width]
        with open(self.weights, "wb") as file:
            header.tofile(file)
            for count in [padded * width, context * width, *(layers * count for count in block), width, width]:
                values = 0.02 * draw(count, numpy.float32)
                values.tofile(file)
        text = numpy.fromfile(f"{folder}/text", numpy.uint8).astype(numpy.uint16)
        header[:] = 0
        header[:3] = 20240520, 1, len(text)
        with open(self.tokens, "wb") as file:
            header.tofile(file)
            text.tofile(file)

    def command(self, a, run_dir, steps):
        return [self.program, self.weights, self.tokens, str(a.batch), str(a.context), str(steps), run_dir]


def run(command):
    """What the system says of a run that is over."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}\nended with status {status}:\n{said.decode(errors='replace')[-2000:]}")
    return usage


def steps_of(run_dir, warm_up):
    """(median seconds of a step, the peak MiB that its log speaks of)."""
    lines = [json.loads(line) for line in Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line.get("event") == "step"]
    times = [line["time"] for line in steps][warm_up - 1 :]
    seconds = statistics.median(after - before for before, after in zip(times, times[1:]))
    return seconds, steps[-1].get("peak_allocated_bytes", 0) / 2**20


def measure(a, command, folder):
    """(seconds of a step, peak MiB): the median, or with --cpu the mean of CPU seconds."""
    run_dir = tempfile.mkdtemp(dir=folder)
    usage = run(command(run_dir, a.steps))
    if not a.cpu:
        seconds, allocated = steps_of(run_dir, a.warm_up)
        return seconds, allocated if a.device == "cuda" else usage.ru_maxrss / 1024
    first = run(command(tempfile.mkdtemp(dir=folder), a.warm_up))
    used = [u.ru_utime + u.ru_stime for u in (first, usage)]
    return (used[1] - used[0]) / (a.steps - a.warm_up), usage.ru_maxrss / 1024


def main():
    a = parse_arguments()
    if a.peer:
        return train_peer(a)
    with tempfile.TemporaryDirectory() as folder:
        random.seed(1)
        Path(folder, "text").write_bytes(bytes(97 + int(26 * random.random() * random.random()) for _ in range(65536)))
        ways = {"dtrain": lambda run_dir, steps: dtrain_command(a, folder, run_dir, steps)}
        for kind in ["eager", "compiled"] if a.compile else ["eager"]:
            ways[f"PyTorch {kind}"] = lambda run_dir, steps, kind=kind: peer_command(a, kind, folder, run_dir, steps)
        if a.llmc:
            llmc = Llmc(a.llmc, folder)
            ways["llm.c, fp32"] = lambda run_dir, steps: llmc.command(a, run_dir, steps)
        if a.compile:  # what it compiles is kept, and is to be no part of a step's time
            run(ways["PyTorch compiled"](tempfile.mkdtemp(dir=folder), a.warm_up))
        found = {name: [] for name in ways}
        for _ in range(a.rounds):
            for name, command in ways.items():
                found[name].append(measure(a, command, folder))
    print(f"{a.device}, {a.precision}: width {a.width}, {a.heads} heads, {a.layers} layers, context {a.context}, "
          f"batch {a.batch}{', 50,257 words' if a.gpt2 else ''}; {'CPU seconds; ' if a.cpu else ''}median of {a.rounds}")
    ours = statistics.median(seconds for seconds, _ in found["dtrain"])
    for name, rounds in found.items():
        seconds = [s for s, _ in rounds]
        print(f"{name:18} {statistics.median(seconds):.3f} s a step ({min(seconds):.3f} to {max(seconds):.3f}), "
              f"{statistics.median(m for _, m in rounds):.0f} MiB, {statistics.median(seconds) / ours:.2f} of dtrain's time")


if __name__ == "__main__":
    main()
