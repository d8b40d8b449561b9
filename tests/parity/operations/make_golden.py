"""Writes FAMILY.json for each FAMILY.py beside it: outputs and gradients of operations as PyTorch computes them in fp32.

Run: python3 make_golden.py [FAMILY …]        (all families when none is named)
A family is a dict `cases`: name -> Case. The test FAMILY_test.cc holds the same operations under the same names. Inputs are not stored:
float input i of a case is torch.empty(shape).uniform_(low, high) after torch.manual_seed(seed + i); the loss is the sum over float outputs
of sum(output * w), w drawn from [-1, 1) with the next seeds. Index inputs (int64) come behind the float ones and are stored.
"""
import importlib, json, pathlib, sys
from dataclasses import dataclass, field
from typing import Callable

import torch

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
sys.modules["make_golden"] = sys.modules["__main__"]  # families take Case from here


@dataclass
class Case:
    shapes: list              # of the float inputs
    f: Callable               # of the float inputs, then the index inputs: a tensor or several
    low: float = -1
    high: float = 1
    indices: list = field(default_factory=list)  # nested lists of integers


def numbers(t):
    if not t.is_floating_point():
        return t.flatten().tolist()
    return [float(f"{v:.9g}") for v in t.flatten().tolist()]


def draw(shape, seed, low=-1, high=1):
    torch.manual_seed(seed)
    return torch.empty(shape).uniform_(low, high)


def golden(case, seed):
    inputs = [draw(s, seed + k, case.low, case.high).requires_grad_() for k, s in enumerate(case.shapes)]
    indices = [torch.tensor(i, dtype=torch.int64) for i in case.indices]
    outputs = case.f(*inputs, *indices)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    terms, next_seed = [], seed + len(inputs)
    for y in outputs:
        if y.is_floating_point():
            terms.append((y * draw(y.shape, next_seed)).sum())
            next_seed += 1
    if terms and any(t.requires_grad for t in terms):
        sum(terms).backward()
    return dict(seed=seed, shapes=case.shapes, low=case.low, high=case.high,
                indices=[dict(shape=list(i.shape), values=numbers(i)) for i in indices],
                outputs=[numbers(y.detach()) for y in outputs],
                gradients=[None if x.grad is None else numbers(x.grad) for x in inputs])


def write(family):
    cases = importlib.import_module(family).cases
    rows = [dict(name=name, **golden(case, 100 * i)) for i, (name, case) in enumerate(cases.items())]
    text = json.dumps(dict(torch=torch.__version__, cases=rows)).replace('{"name"', '\n{"name"')
    path = here / f"{family}.json"
    path.write_text(text + "\n")
    print(path.name, len(rows), "cases,", len(text), "bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(here))
    for name in sys.argv[1:] or sorted(p.stem for p in here.glob("*.py") if p.stem != "make_golden"):
        write(name)
