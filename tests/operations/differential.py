#!/usr/bin/env python3
"""Runs random cases of dtrain's operations beside PyTorch and prints a table: family, cases, the worst error of
either in epsilons of the dtype, and refusals that differ. Exit code 1 where a difference is not in KNOWN.

  differential.py EVALUATOR --cases 10000 --seed 7               wide, by hand
  differential.py EVALUATOR --family conv2d --show 5             one family, with the cases that differ
  differential.py EVALUATOR --record recorded.jsonl              writes the cases that are replayed without PyTorch
"""
import argparse
import collections
import copy
import json
import math
import random
import subprocess
import sys

import torch

import cases
import compare
import reference
from draw import Random


def has_nothing(case, verdict):
    """An extent of 0 where PyTorch wants something."""
    given = [*case["tensors"].values(), *case["seeds"].values()]
    return verdict.what == "PyTorch refuses" and any(reference.seed_of(tensor, False).numel() == 0 for tensor in given)


def corrupts_neighbours(case, verdict):
    values = case["tensors"]["x"]["values"]
    return case["tensors"]["x"]["dtype"] == "bfloat16" and ("nan" in values or "inf" in values) and "is nan" in verdict.what


def drops_corrupted_values(case, verdict):
    return case["op"] == "conv2d_relu_pool2d" and "grad" in verdict.what and verdict.what.endswith("PyTorch's nan")


def root_of_what_is_not_positive(case, _):
    values = case["tensors"]["x"]["values"].split()
    return case["op"] == "pow" and abs(case["options"]["number"]) == 0.5 and ("-inf" in values or "-0" in values)


# Where a slope is 0, as a difference of two terms of about a fifth each that changes by 0.43 and 0.22 times the distance.
ZERO_SLOPES = {"gelu": -0.7517915246935645, "silu": -1.2784645427610738}


def slope_vanishes(case, verdict):
    if case["op"] not in ZERO_SLOPES or "grad" not in verdict.what or "epsilons off" not in verdict.what:
        return False
    zero = ZERO_SLOPES[case["op"]]
    nearest = min((abs(float(v) - zero) for v in case["tensors"]["x"]["values"].split()), default=1)
    return float(verdict.what.split(" epsilons off")[0].split()[-1]) * nearest <= 2


def rounds_the_exponent(case, verdict):
    """The relative error of x ** n is that of n times |log x|: only far from 1 does it show, and then by so much."""
    if case["op"] != "pow" or case["tensors"]["x"]["dtype"] != "float32" or "epsilons off" not in verdict.what:
        return False
    sizes = [abs(float(v)) for v in case["tensors"]["x"]["values"].split()]
    farthest = max((abs(math.log(v)) for v in sizes if 0 < v < math.inf), default=0)
    return farthest > 10 and float(verdict.what.split(" epsilons off")[0].split()[-1]) <= farthest * abs(case["options"]["number"])


def is_the_greatest_of_nothing(case, verdict):
    return case["op"] in ("amax", "amin") and verdict.what == "PyTorch refuses" and not case["tensors"]["x"]["values"]


def picks_one_of_two_zeros(case, verdict):
    return case["op"] in ("maximum", "minimum", "clamp") and "zero of the other sign" in verdict.what


def cancels_far_from_zero(case, verdict):
    return case["op"] == "softsign" and "grad" in verdict.what


def ignores_a_row(case, verdict):
    return case["op"] == "cross_entropy" and "ignore" in case["options"] and "grad x" in verdict.what \
        and verdict.what.endswith("is 0.0, PyTorch's nan")


def has_odd_strides(case, verdict):
    return case["op"] == "gelu" and verdict.what == "PyTorch refuses" and bool(case["seeds"]["y"]["views"])


def keeps_the_original(case, verdict):
    changed = case["tensors"].get(case.get("changed"), {})
    return case["op"] == "matmul" and "modified in place" in verdict.what and len(changed["shape"]) > 2


def keeps_a_copy(case, verdict):
    return case["op"] in ("rms_norm", "scaled_dot_product_attention", "packed_attention") and "modified in place" in verdict.what


def saturates(case, verdict):
    return case["op"] == "tanh" and "grad" in verdict.what and verdict.ours != math.inf


# Differences that stay: (family, a test of case and verdict, the reason).
KNOWN = [
    ("conv2d", has_nothing, "a convolution of images without pixels or to no channels: PyTorch refuses"),
    ("pooling", has_nothing, "pooling of images without channels or pixels: PyTorch refuses, dtrain gives the empty result"),
    ("convolutions", has_nothing, "a transposed convolution to no pixels in float64: PyTorch refuses"),
    ("batch_norm", has_nothing, "batch normalisation without channels: PyTorch refuses"),
    ("unary", root_of_what_is_not_positive,
     "pow(-inf, 0.5), pow(-0, 0.5): C's, as pow with every other exponent; PyTorch takes sqrt and rsqrt for 0.5 and -0.5"),
    ("*", slope_vanishes,
     "gelu's and silu's gradient beside its zero, where two terms cancel"),
    ("unary", has_odd_strides,
     "gelu's gradient from one whose strides interleave: PyTorch's oneDNN refuses it"),
    ("matmul", keeps_the_original,
     "matmul's argument has changed: PyTorch multiplied a copy, where it wanted another shape, dtrain refuses"),
    ("indexing", has_nothing, "padding less than nothing where an extent is 0: PyTorch refuses"),
    ("unary", rounds_the_exponent,
     "pow of a float32 far from 1: dtrain rounds the exponent to float32 as the tensor is, PyTorch keeps it in double"),
    ("unary", saturates,
     "1 - tanh(x)^2 beside 1: dtrain rounds the square first, PyTorch's vector loop may not"),
    ("activations", cancels_far_from_zero,
     "softsign's gradient far from 0, which PyTorch has as a difference of two quotients"),
    ("losses", ignores_a_row, "an ignored row whose logits are not finite: dtrain's gradient is 0 there all the same"),
    ("*", keeps_a_copy,
     "rms_norm and attention after a tensor of theirs has changed: PyTorch, in parts, has copies, dtrain refuses"),
    ("*", picks_one_of_two_zeros,
     "the larger or smaller of 0 and -0, which are equal: PyTorch's vector and scalar loops choose differently"),
    ("reductions", is_the_greatest_of_nothing,
     "amax and amin along no elements where no result is wanted either: PyTorch refuses, dtrain gives the empty result"),
    ("conv2d", corrupts_neighbours,
     "bf16 with an odd channel count: oneDNN multiplies the next pixel's first channel by 0, and 0 times NaN is NaN"),
    ("conv2d", drops_corrupted_values,
     "the fused block does not compute what pooling drops, so that NaN there does not reach the gradients"),
]

LINEAR = {"reductions", "matmul", "conv2d", "pooling", "indexing", "convolutions"}


def generate(family, seed, index, small):
    generator = random.Random(f"{seed}/{family}/{index}")
    given = cases.FAMILIES[family](Random(generator, small))
    if given["seeds"] and generator.random() < 0.15:
        given["changed"] = generator.choice([*given["tensors"], *given["seeds"]])
    return {"id": f"{family}/{index}", **given}


class Evaluator:
    """dtrain_differential as a process; one that dies on a case is replaced."""

    def __init__(self, path):
        self.path, self.process = path, None

    def __call__(self, case):
        if self.process is None:
            self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.process = None
        return {"id": case["id"], "failed": f"the evaluator died ({code})"}


def peers(case, wide, changed=None):
    """PyTorch's results, or None where it refuses."""
    try:
        return reference.run(case, wide, changed)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
        return None


def absolute_values(case, of):
    """The same case on absolute values of the tensors `of`: how large the terms of its sums are."""
    result = copy.deepcopy(case)
    for tensor in (tensor for kind in of for tensor in result[kind].values()):
        if tensor["dtype"] != "int64":
            tensor["values"] = " ".join(v.lstrip("-") for v in tensor["values"].split())
    return result


def magnitude_of(family, case):
    """How large the terms are that results are sums of, where they are sums."""
    if family in LINEAR:
        return peers(absolute_values(case, ("tensors", "seeds")), True) or {}
    if family in compare.BY_ELEMENT:  # what is expanded gets a sum of gradients
        sizes = peers(absolute_values(case, ("seeds",)), True) or {}
        if case["op"] == "gelu" and sizes:  # exact in last places of x: docs/decisions/061
            sizes["y"] = peers({**case, "op": "abs"}, True)["y"]
        return sizes
    if case["op"] in ("batch_norm", "layer_norm", "rms_norm"):
        return reference.steepness(case)
    return reference.seed_sizes(case) if family in ("losses", "layers", "packed", "pair_losses") else {}


def judge(family, case, answer):
    """A verdict on the case, with `refusal` set where one side refuses and the other does not."""
    own = peers(case, False)
    verdict = compare.Verdict()
    if "failed" in answer:
        verdict.what = answer["failed"]
    elif "refused" in answer and "changed" in case and peers(case, False, case["changed"]) is None:
        pass  # PyTorch needs what was changed, too. Where only PyTorch does, the gradients are those of before.
    elif ("refused" in answer) != (own is None):
        verdict.refusal = True
        verdict.what = "refused: " + answer["refused"] if "refused" in answer else "PyTorch refuses"
    elif own is not None:
        ours = {name: reference.make(value, False) for name, value in answer["results"].items()}
        exact = peers(case, True) or own  # PyTorch's float64 refuses some empty results
        verdict = compare.compare(family, ours, own, exact, magnitude_of(family, case))
    return verdict


def reason(family, case, verdict):
    for known_family, test, why in KNOWN:
        if known_family in (family, "*") and test(case, verdict):
            return why
    return None


def run_family(family, count, options, evaluate):
    row = collections.Counter()
    ours = theirs = 0.0
    known = collections.Counter()
    for index in range(count):
        case = generate(family, options.seed, index, False)
        verdict = judge(family, case, evaluate(case))
        if math.isfinite(verdict.ours):
            ours, theirs = max(ours, verdict.ours), max(theirs, verdict.peers)
        if not verdict.what:
            continue
        why = reason(family, case, verdict)
        if why:
            known[why] += 1
            continue
        row["refusals" if verdict.refusal else "differences"] += 1
        if row.total() <= options.show:
            print(f"{case['id']} {case['op']}: {verdict.what}")
            if options.verbose:
                print("  " + json.dumps(case))
    print(f"{family:12} {count:7} {ours:11.3g} {theirs:11.3g} {row['differences']:12} {row['refusals']:9} "
          f"{known.total():6}", flush=True)
    return row.total(), known


def record(path, options, evaluate):
    """The cases both sides agree on, one JSON object a line."""
    lines = 0
    with open(path, "w", encoding="ascii") as file:
        for family in options.family or cases.FAMILIES:
            for index in range(options.cases // len(cases.FAMILIES)):
                case = generate(family, options.seed, index, True)
                answer = evaluate(case)
                if judge(family, case, answer).what:
                    continue
                own, case["expected"] = None if "refused" in answer else peers(case, False), None
                if own is not None:
                    exact = peers(case, True) or own
                    case["expected"] = compare.recorded(family, own, exact, magnitude_of(family, case))
                    if case["expected"] is None:
                        continue
                file.write(json.dumps(case, separators=(",", ":")) + "\n")
                lines += 1
    print(f"{path}: {lines} cases")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluator", help="the program dtrain_differential")
    parser.add_argument("--cases", type=int, default=600, help="over all families [600]")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--family", action="append", choices=list(cases.FAMILIES), help="this one alone; repeatable")
    parser.add_argument("--show", type=int, default=3, help="differing cases to print of each family [3]")
    parser.add_argument("--verbose", action="store_true", help="print them whole")
    parser.add_argument("--record", help="write cases with expected results to this file instead")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    families = options.family or list(cases.FAMILIES)
    evaluate = Evaluator(options.evaluator)
    if options.record:
        record(options.record, options, evaluate)
        return 0
    print(f"{'family':12} {'cases':>7} {'dtrain':>11} {'PyTorch':>11} {'differences':>12} {'refusals':>9} {'known':>6}")
    wrong, known = 0, collections.Counter()
    for family in families:
        bad, reasons = run_family(family, options.cases // len(families), options, evaluate)
        wrong += bad
        known += reasons
    print(f"worst errors in epsilons; seed {options.seed}; PyTorch {torch.__version__}")
    for why, count in known.items():
        print(f"known, {count} cases: {why}")
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
