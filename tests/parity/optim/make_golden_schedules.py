"""Writes schedules.safetensors: what the schedulers of PyTorch and of transformers make of learning rates, step by step.

Run: /opt/peer/bin/python make_golden_schedules.py [--out FILE]
Schedulers that multiply the rate of the step before round once a step; of those that have a closed form it is taken, so
that one number is compared with one formula. optim_parity_test.cc holds the same schedules by name.
"""
import argparse, pathlib, sys, warnings
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import golden

p = argparse.ArgumentParser()
p.add_argument("--out", default="schedules.safetensors")
a = p.parse_args()
warnings.filterwarnings("ignore")
STEPS, BASES = 40, [0.3, 0.007]
S = torch.optim.lr_scheduler


def optimizer():
    return torch.optim.SGD([dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=base) for base in BASES], lr=0.1)


def rates(make, closed=False, metrics=None):
    o = optimizer()
    s = make(o)
    out = [[] for _ in BASES]
    for step in range(STEPS):
        for group, rate in enumerate(s._get_closed_form_lr() if closed else [g["lr"] for g in o.param_groups]):
            out[group].append(float(rate))
        o.step()
        s.step(*([] if metrics is None else [metrics[step]]))
    return out


# Better for a while, then not; better by less than the threshold; better again.
losses = [3.0, 2.5, 2.2, 2.1, 2.2, 2.3, 2.1, 2.15, 2.09999, 2.2, 2.1, 1.5, 1.6, 1.7, 1.5, 1.5, 1.5, 1.4, 1.5, 1.6] * 2
h = transformers
cases = {
    "linear": rates(lambda o: S.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=30), closed=True),
    "polynomial": rates(lambda o: S.PolynomialLR(o, total_iters=30, power=1.5), closed=True),
    "exponential": rates(lambda o: S.ExponentialLR(o, gamma=0.93), closed=True),
    "step": rates(lambda o: S.StepLR(o, step_size=7, gamma=0.3), closed=True),
    "milestones": rates(lambda o: S.MultiStepLR(o, milestones=[5, 12, 30], gamma=0.2), closed=True),
    "cosine": rates(lambda o: S.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.001), closed=True),
    "one-cycle": rates(lambda o: S.OneCycleLR(o, max_lr=BASES, total_steps=STEPS + 1, pct_start=10 / (STEPS + 1), cycle_momentum=False)),
    "inverse-sqrt": rates(lambda o: h.get_inverse_sqrt_schedule(o, num_warmup_steps=6)),
    "wsd": rates(lambda o: h.get_wsd_schedule(o, num_warmup_steps=5, num_decay_steps=8, num_training_steps=STEPS, decay_type="linear")),
    "plateau": rates(lambda o: S.ReduceLROnPlateau(o, factor=0.4, patience=2, min_lr=0.0005), metrics=losses),
    "factor": rates(lambda o: S.LambdaLR(o, lambda step: 0.9 ** (step // 4))),
}
golden.save(a.out, {"torch": torch.__version__, "transformers": transformers.__version__, "losses": losses, "bases": BASES, "cases": cases})
