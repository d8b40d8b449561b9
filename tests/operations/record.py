#!/usr/bin/env python3
"""Writes recorded.safetensors: what PyTorch gives in float64 for the cases of cases.jsonl that are not large, results
and gradients, as "CASE/RESULT" and "CASE/grad ARGUMENT".

  record.py            with torch and safetensors; after a change of cases.jsonl
"""
import json
import pathlib

import torch
from safetensors.torch import save_file

import reference

FOLDER = pathlib.Path(__file__).parent


def main():
    torch.set_num_threads(1)
    recorded = {}
    for line in (FOLDER / "cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        if case.get("large"):
            continue
        for name, tensor in reference.run(case, wide=True).items():
            kept = tensor.double() if tensor.dtype.is_floating_point else tensor
            recorded[f"{case.get('name', case['op'])}/{name}"] = kept.detach().contiguous().clone()
    save_file(recorded, FOLDER / "recorded.safetensors", {"torch": torch.__version__})
    print(len(recorded), "tensors of PyTorch", torch.__version__)


if __name__ == "__main__":
    main()
