"""Writes golden.safetensors: parameters after each step of PyTorch's optimizers with groups, and what clipping makes of gradients.

Run: python3 make_golden.py [--out FILE]
Two parameters, w [3, 2] and b [3]; their values and the gradients of step t are torch.empty(n).uniform_(-1, 1) after
torch.manual_seed(100) and torch.manual_seed(101 + t), w before b. optim_parity_test.cc holds the same optimizers by name.
"""
import argparse, pathlib, sys
import torch
import torch.optim._muon

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import golden

p = argparse.ArgumentParser()
p.add_argument("--out", default="golden.safetensors")
a = p.parse_args()
torch.set_num_threads(1)
STEPS = 6


def draw(seed):
    torch.manual_seed(seed)
    return [torch.empty(3, 2).uniform_(-1, 1), torch.empty(3).uniform_(-1, 1)]


O = torch.optim
optimizers = {
    "sgd groups": lambda w, b: O.SGD([dict(params=[w], weight_decay=0.1, momentum=0.9), dict(params=[b], lr=0.3)], lr=0.05),
    "adamw groups": lambda w, b: O.AdamW([dict(params=[w]), dict(params=[b], weight_decay=0.0, lr=0.02)], lr=0.01, weight_decay=0.1),
    "adam groups cosine": lambda w, b: O.Adam([dict(params=[w]), dict(params=[b], lr=0.002)], lr=0.01),
}


class MuonAndAdamW:
    """w by Muon, without its rounding to bfloat16, b by AdamW without weight decay: `--optimizer muon`."""

    def __init__(self, w, b):
        def in_float32(g, coefficients, steps, eps):
            x = g / g.norm().clamp(min=eps) if g.size(0) <= g.size(1) else (g / g.norm().clamp(min=eps)).T
            for _ in range(steps):
                gram = x @ x.T
                x = coefficients[0] * x + (coefficients[1] * gram + coefficients[2] * gram @ gram) @ x
            return x if g.size(0) <= g.size(1) else x.T

        torch.optim._muon._zeropower_via_newtonschulz = in_float32
        self.both = [O.Muon([w], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
                     O.AdamW([b], lr=0.02, weight_decay=0.0, betas=(0.9, 0.95))]

    def step(self):
        for optimizer in self.both:
            optimizer.step()


optimizers["muon and adamw"] = MuonAndAdamW


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
golden.save(a.out, out)
