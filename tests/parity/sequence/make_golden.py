"""Writes golden.safetensors: the losses of 30 steps of SGD with recurrent networks on the adding problem (Hochreiter and Schmidhuber 1997).

Run: python3 make_golden.py [--out FILE]
A sequence has 12 numbers of U(0, 1), two of which are marked; the target is their sum. Batch t of 16 sequences is
torch.empty(12, 16).uniform_(0, 1) after torch.manual_seed(1000 + t); of sequence i, steps i % 6 and 6 + 5 * i % 6 are marked.
The network is made after torch.manual_seed(0): the recurrent layers, then Linear(hidden, 1) of the last output.
"""
import argparse, pathlib, sys
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import golden

p = argparse.ArgumentParser()
p.add_argument("--out", default="golden.safetensors")
a = p.parse_args()
torch.set_num_threads(1)
LENGTH, BATCH, HIDDEN, STEPS = 12, 16, 10, 30

marks = torch.zeros(LENGTH, BATCH)
for i in range(BATCH):
    marks[i % 6, i] = marks[6 + 5 * i % 6, i] = 1


def batch(t):
    torch.manual_seed(1000 + t)
    values = torch.empty(LENGTH, BATCH).uniform_(0, 1)
    return torch.stack([values, marks], -1), (values * marks).sum(0).unsqueeze(1)


def train(kind, options):
    torch.manual_seed(0)
    layers = getattr(torch.nn, kind)(2, HIDDEN, **options)
    head = torch.nn.Linear(HIDDEN * (2 if options.get("bidirectional") else 1), 1)
    optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
    losses = []
    for t in range(STEPS):
        x, y = batch(t)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(head(layers(x)[0][-1]), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*layers.parameters(), *head.parameters()], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return dict(losses=losses, weight=float(layers.weight_hh_l0.detach().sum()))


out = {"torch": torch.__version__, "LSTM": train("LSTM", dict(num_layers=2)), "GRU": train("GRU", dict(bidirectional=True)), "RNN": train("RNN", {})}
golden.save(a.out, out)
for k in ("LSTM", "GRU", "RNN"):
    print(k, out[k]["losses"][::6], out[k]["weight"])
