"""Writes golden.json: parameters after each step of PyTorch's optimizers, and what clipping makes of gradients.

Run: python3 make_golden.py [--out FILE]
Two parameters, w [3, 2] and b [3]; their values and the gradients of step t are torch.empty(n).uniform_(-1, 1) after
torch.manual_seed(100) and torch.manual_seed(101 + t), w before b. optim_parity_test.cc holds the same optimizers by name.
"""
import argparse, json
import torch

p = argparse.ArgumentParser()
p.add_argument("--out", default="golden.json")
a = p.parse_args()
torch.set_num_threads(1)
STEPS = 6


def draw(seed):
    torch.manual_seed(seed)
    return [torch.empty(3, 2).uniform_(-1, 1), torch.empty(3).uniform_(-1, 1)]


O = torch.optim
optimizers = {
    "adam": lambda w, b: O.Adam([w, b], lr=0.01),
    "adam l2": lambda w, b: O.Adam([w, b], lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "rmsprop": lambda w, b: O.RMSprop([w, b], lr=0.01),
    "rmsprop momentum l2": lambda w, b: O.RMSprop([w, b], lr=0.01, alpha=0.9, momentum=0.8, weight_decay=0.1),
    "rmsprop centered": lambda w, b: O.RMSprop([w, b], lr=0.01, eps=1e-3, centered=True),
    "rmsprop centered momentum": lambda w, b: O.RMSprop([w, b], lr=0.01, eps=1e-3, centered=True, momentum=0.5),
    "adagrad": lambda w, b: O.Adagrad([w, b], lr=0.1),
    "adagrad decay l2": lambda w, b: O.Adagrad([w, b], lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.5),
    "sgd groups": lambda w, b: O.SGD([dict(params=[w], weight_decay=0.1, momentum=0.9), dict(params=[b], lr=0.3)], lr=0.05),
    "adamw groups": lambda w, b: O.AdamW([dict(params=[w]), dict(params=[b], weight_decay=0.0, lr=0.02)], lr=0.01, weight_decay=0.1),
    "adam groups cosine": lambda w, b: O.Adam([dict(params=[w]), dict(params=[b], lr=0.002)], lr=0.01),
}


def numbers(t):
    return [float(f"{v:.9g}") for v in t.flatten().tolist()]


out = {"torch": torch.__version__, "steps": STEPS, "cases": [], "clip": []}
for name, make in optimizers.items():
    w, b = [t.requires_grad_() for t in draw(100)]
    optimizer = make(w, b)
    schedule = O.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.001) if "cosine" in name else None
    after = []
    for step in range(STEPS):
        w.grad, b.grad = draw(101 + step)
        optimizer.step()
        if schedule:
            schedule.step()
        after.append(numbers(w.detach()) + numbers(b.detach()))
    out["cases"].append(dict(optimizer=name, after=after))
for max_norm, norm_type in [(1.0, 2.0), (100.0, 2.0), (0.5, float("inf")), (0.0, 2.0)]:
    w, b = [t.requires_grad_() for t in draw(100)]
    w.grad, b.grad = draw(101)
    norm = torch.nn.utils.clip_grad_norm_([w, b], max_norm, norm_type)
    out["clip"].append(dict(max_norm=max_norm, norm_type=str(norm_type), norm=norm.item(), grads=numbers(w.grad) + numbers(b.grad)))
w, b = [t.requires_grad_() for t in draw(100)]
w.grad, b.grad = draw(101)
torch.nn.utils.clip_grad_value_([w, b], 0.3)
out["clip_value"] = dict(limit=0.3, grads=numbers(w.grad) + numbers(b.grad))
text = json.dumps(out).replace(', {"', ',\n{"')
open(a.out, "w").write(text + "\n")
print(a.out, len(text))
