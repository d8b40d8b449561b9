"""Compares the losses two runs recorded, step by step. Two honest fp32 implementations drift apart by 2e-6 in 15 steps of
this trace and by 6e-6 in 40 (docs/decisions/008); the bound leaves an order of magnitude for other orders of summation.

usage: compare_losses.py RUN RUN BOUND [STEPS]      STEPS: only so many from the first on
"""
import json
import sys


def losses(run):
    found = {}
    with open(f"{run}/metrics.jsonl") as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("event") == "step":
                found.setdefault(record["step"], record["loss"])
    return found


most = int(sys.argv[4]) if len(sys.argv) > 4 else sys.maxsize
first, second = ({step: loss for step, loss in losses(run).items() if step <= most} for run in sys.argv[1:3])
bound = float(sys.argv[3])
if not first or first.keys() != second.keys():
    sys.exit(f"expected the same steps in both runs, got {len(first)} and {len(second)}")
worst = max(first, key=lambda step: abs(first[step] - second[step]))
difference = abs(first[worst] - second[worst])
print(f"{len(first)} steps, largest difference {difference:.2e} at step {worst} (bound {bound:.0e})")
sys.exit(0 if difference <= bound else 1)
