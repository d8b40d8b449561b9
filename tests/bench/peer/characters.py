"""nanoGPT's recipe for characters on a CPU (4 blocks of width 128, 2,000 steps of 12 × 64) beside a PyTorch program with the same
network and numbers, one process of one thread each, in turns: CPU seconds of the steps, and the loss of the whole held-out tenth.

usage: characters.py FILE [--steps 2000] [--rounds 1] [--compile]
  FILE: a text; with tinyshakespeare (1,115,394 bytes) the loss after 2,000 steps is about 1.88, as nanoGPT's README says
DTRAIN_BIN: where dtrain is (default build/release/bin). Run it with a Python that has torch.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

import transformer

CONTEXT, BATCH, WIDTH, HEADS, LAYERS = 64, 12, 128, 4, 4
WARM_UP = 100
FILES = "train.txt", "test.txt"


def rate(step, steps):
    """Of nanoGPT, with llm.c's warm-up: `step` counts from 1."""
    if step <= WARM_UP:
        return 1e-3 * step / WARM_UP
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))) * 9e-4


def train_peer(a):
    """PyTorch's run: nanoGPT's GPT and loop, with bytes for characters."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)]
            attended = F.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.proj(attended.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm = nn.LayerNorm(WIDTH)
            for name, parameter in self.named_parameters():
                if parameter.ndim >= 2:
                    nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * LAYERS) if name.endswith(("proj.weight", "down.weight")) else 0.02)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, tokens, targets):
            x = self.norm(self.blocks(self.words(tokens) + self.places.weight[: tokens.shape[1]]))
            return F.cross_entropy((x @ self.words.weight.T).flatten(0, 1), targets.flatten())

    torch.set_num_threads(1)
    torch.manual_seed(1337)
    train, held_out = (torch.frombuffer(bytearray(Path(a.file, name).read_bytes()), dtype=torch.uint8).long() for name in FILES)
    net = Gpt()
    loss_of = torch.compile(net) if a.peer == "compiled" else net
    matrices, others = ([p for p in net.parameters() if (p.ndim >= 2) == wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], 1e-3,
                                  betas=(0.9, 0.99))
    for step in range(1, a.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, a.schedule)
        starts = torch.randint(len(train) - CONTEXT, (BATCH,)).tolist()
        loss = loss_of(torch.stack([train[s : s + CONTEXT] for s in starts]), torch.stack([train[s + 1 : s + CONTEXT + 1] for s in starts]))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    with torch.no_grad():
        windows = held_out.unfold(0, CONTEXT + 1, CONTEXT)
        total = sum(net(part[:, :-1], part[:, 1:]).item() * len(part) for part in windows.split(64))
    Path(a.run_dir, "metrics.jsonl").write_text(json.dumps({"event": "eval", "loss": total / len(windows)}))


def loss_in(run_dir):
    lines = [json.loads(line) for line in Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line.get("event") == "eval"][-1]


def measure(command, folder, steps):
    """(CPU seconds of all steps but two, the loss after all)."""
    used = []
    for count in (2, steps):
        run_dir = tempfile.mkdtemp(dir=folder)
        usage = transformer.run(command(run_dir, count))
        used.append(usage.ru_utime + usage.ru_stime)
    return used[1] - used[0], loss_in(run_dir)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--compile", action="store_true", help="also PyTorch with torch.compile")
    p.add_argument("--peer", choices=["eager", "compiled"], help=argparse.SUPPRESS)  # this process is PyTorch's run
    p.add_argument("--schedule", type=int, help=argparse.SUPPRESS)
    p.add_argument("--run-dir", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return train_peer(a)
    if a.steps <= WARM_UP or a.rounds < 1:
        p.error(f"expected more than {WARM_UP} steps and at least one round")
    program = str(Path(os.environ.get("DTRAIN_BIN", "build/release/bin")) / "dtrain")

    text = Path(a.file).read_bytes()
    cut = len(text) * 9 // 10

    def dtrain(run_dir, steps):
        return [program, "train", "--recipe", "char-cpu", "--dataset", f"text:{FILES[0]},test={FILES[1]},context={CONTEXT}",
                "--data-dir", folder, "--max-steps", str(steps), "--threads", "1", "--eval-every", "1000", "--checkpoint-every", "0",
                "--resume", "never", "--run-dir", run_dir]

    def pytorch(kind):
        return lambda run_dir, steps: [sys.executable, __file__, folder, "--peer", kind, f"--steps={steps}", f"--schedule={a.steps}",
                                       "--run-dir", run_dir]
    ways = {"dtrain": dtrain, "PyTorch eager": pytorch("eager")}
    if a.compile:
        ways["PyTorch compiled"] = pytorch("compiled")
    found = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in zip(FILES, (text[:cut], text[cut:])):
            Path(folder, name).write_bytes(part)
        for _ in range(a.rounds):
            for name, command in ways.items():
                found[name].append(measure(command, folder, a.steps))
    ours = statistics.median(seconds for seconds, _ in found["dtrain"])
    print(f"{a.steps} steps of {BATCH} × {CONTEXT} bytes of {Path(a.file).name}; CPU seconds, median of {a.rounds}")
    for name, rounds in found.items():
        seconds, losses = zip(*rounds)
        print(f"{name:18} {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), "
              f"{statistics.median(seconds) / ours:.2f} of dtrain's; held-out loss {statistics.median(losses):.4f}")


if __name__ == "__main__":
    main()
