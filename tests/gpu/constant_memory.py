"""Whether a run's GPU memory stays as it is from the third epoch on, step by step with evaluations and checkpoints between.

usage: constant_memory.py RUN
"""
import json
import sys

with open(f"{sys.argv[1]}/metrics.jsonl") as lines:
    steps = [record for record in map(json.loads, lines) if record.get("event") == "step" and record["epoch"] >= 2]
if len(steps) < 20:
    sys.exit(f"expected at least 20 steps from the third epoch on, got {len(steps)}")
peaks = {step["peak_allocated_bytes"] for step in steps}
now = [step["allocated_bytes"] for step in steps]
print(f"{len(steps)} steps: peak {max(peaks):,} bytes, at a step's end {min(now):,} to {max(now):,}")
sys.exit(0 if len(peaks) == 1 and now[-1] <= now[0] else 1)
