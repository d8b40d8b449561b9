#!/usr/bin/env python3
"""`dtrain train --optimizer muon` beside torch.optim.Muon and torch.optim.AdamW: a perceptron of four layers on batches of
all samples, from the same weights; each step's loss, and the weights at the end. PyTorch's Muon rounds its iteration to
bfloat16, dtrain's is in float32: it is compared with the same iteration in float32, and the rounded one is shown.

usage: DTRAIN_BIN=… muon_run.py    (DTRAIN_PEER_PYTHON: a Python with torch and safetensors; without, exit code 77)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "operations"))  # reference.py has the iteration in float32

STEPS, LR, SAMPLES = 20, 0.005, 64


def write_npy(path, dtype, shape, data):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def train(folder, name, lr, steps):
    """Losses by step and the weights after the last."""
    from safetensors.torch import load_file
    run = folder / name
    subprocess.run([os.path.join(os.environ["DTRAIN_BIN"], "dtrain"), "train", "--model", "mlp", "--dataset",
                    f"npy:image={folder}/x.npy,label={folder}/y.npy,test.image={folder}/x.npy,test.label={folder}/y.npy",
                    "--optimizer", "muon", "--lr", str(lr), "--global-batch-size", str(SAMPLES), "--max-steps", str(steps),
                    "--eval-every", "0", "--log-every", "1", "--seed", "3", "--run-dir", run], check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    files = sorted(run.glob("checkpoints/*/model.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    return [line["loss"] for line in lines if line["event"] == "step"], load_file(files[-1])


def train_in_torch(weights, x, y, rounds):
    import torch
    from torch.optim import _muon
    from reference import orthogonalized
    original = _muon._zeropower_via_newtonschulz
    if not rounds:
        _muon._zeropower_via_newtonschulz = orthogonalized
    w = {name: weights[name].clone().requires_grad_() for name in weights}
    vectors = [w[f"fc{i}.bias"] for i in (1, 2, 3)]
    muon = torch.optim.Muon([w["fc1.weight"], w["fc2.weight"]], lr=LR, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([dict(params=[w["fc3.weight"]], weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
                              lr=LR, betas=(0.9, 0.95))
    losses = []
    for _ in range(STEPS):
        h = x.flatten(1)
        for i in (1, 2):
            h = torch.relu(torch.nn.functional.linear(h, w[f"fc{i}.weight"], w[f"fc{i}.bias"]))
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w["fc3.weight"], w["fc3.bias"]), y)
        muon.zero_grad(), adamw.zero_grad()
        loss.backward()
        muon.step(), adamw.step()
        losses.append(loss.item())
    _muon._zeropower_via_newtonschulz = original
    return losses, w


def compare():
    import torch
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 1, 6, 6, generator=generator)
    y = torch.randint(10, (SAMPLES,), generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_npy(folder / "x.npy", "<f4", tuple(x.shape), bytes(x.untyped_storage()))
        write_npy(folder / "y.npy", "<i8", tuple(y.shape), bytes(y.untyped_storage()))
        _, weights = train(folder, "start", 0, 1)
        losses, after = train(folder, "run", LR, STEPS)
    for rounds in (False, True):
        expected, w = train_in_torch(weights, x, y, rounds)
        loss = max(abs(a - b) for a, b in zip(losses, expected))
        weight = max((after[name] - w[name].detach()).abs().max().item() for name in w)
        print(f"torch {torch.__version__}, iteration in {'bfloat16' if rounds else 'float32'}: {STEPS} steps, loss "
              f"{losses[0]:.4f} to {losses[-1]:.4f}, greatest difference {loss:.2g}, of weights {weight:.2g}")
        if not rounds:
            assert len(losses) == len(expected) == STEPS and loss <= 1e-5 and weight <= 1e-4, "dtrain's numbers are others"
    assert losses[-1] < 0.5 * losses[0], "nothing was learned"


def main():
    python = os.environ.get("DTRAIN_PEER_PYTHON")
    if not python:
        print("skipped: DTRAIN_PEER_PYTHON names no Python with torch and safetensors")
        sys.exit(77)
    if "--inside" not in sys.argv:
        sys.exit(subprocess.run([python, __file__, "--inside"], check=False).returncode)
    compare()


if __name__ == "__main__":
    main()
