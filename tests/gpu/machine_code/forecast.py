"""What a step would take on an H100 if each kernel had no more bytes on their way than its machine code lets it: Little's law on
top of the roofline that `dtrain bench step --forecast h100 --json` counts. A prediction, and of kernels of our own only.

usage: forecast.py PRECISION COUNTED TABLE [COUNTED TABLE]…      for each state of the kernels what was counted, and its table

PRECISION  half (bf16, fp16) or f32: which rows of the tables
COUNTED    what `DTRAIN_EMULATED_GPUS=1 dtrain bench step --device cuda --forecast h100 --json …` printed
TABLE      kernels.sm_90.tsv

A multiprocessor that has B bytes on their way reads B a latency: 600 cycles of an idle memory, taken twice for one that is at
work. Of the kernels that share a name, the widest count, and of those the one with the fewest bytes on their way: where a name
stands for several (dense_kernel, sums_kernel), all are taken for the worst of them.
Not in it: what loads of less than 16 bytes cost the first cache, hits in caches, and how the library calls are written.
"""
import json
import re
import sys

import machine_code

MULTIPROCESSORS, CLOCK, MEMORY = 132, 1.755e9, 3.35e12  # of an H100 SXM, by its data sheet
LATENCY = 2 * 600 / CLOCK
THREADS = 2048  # of a multiprocessor


def in_flight(rows, name, precision):
    """Bytes that a multiprocessor has on their way in the kernel of that name, or None."""
    found = {}  # by elements a thread takes, where the name has them
    for row, figures in rows.items():
        head, _, rest = row.rstrip(">").partition("<")
        arguments = re.split("[, ]", rest)
        if head.split("::")[-1] == name and (precision in arguments or not rest) and figures["in_flight"]:
            width = int(arguments[-1]) if name != "relu_pool_kernel" and arguments[-1].isdigit() else 1
            found.setdefault(width, []).append(figures["in_flight"] * THREADS * figures["occupancy"] / 100)
    return min(found[max(found)]) if found else None


def seconds_of(call, rows, precision):
    """Of all calls of one kernel in a step."""
    on_their_way = in_flight(rows, call["kernel"], precision)
    least = call["predicted_ms"] * 1e-3
    if on_their_way is None:
        return least
    rate = min(MEMORY, MULTIPROCESSORS * on_their_way / LATENCY)
    return max(least, (call["read_bytes"] + call["written_bytes"]) / rate)


def main():
    if len(sys.argv) < 4 or len(sys.argv) % 2:
        sys.exit(__doc__)
    precision, states = sys.argv[1], []  # of each state {kernel: (ms of the roofline, ms)}
    for counted, table in zip(sys.argv[2::2], sys.argv[3::2]):
        rows = machine_code.read_table(table)[1]
        with open(counted, encoding="utf-8") as file:
            calls = [json.loads(line) for line in file if line.startswith("{")]
        states.append({call["kernel"]: (call["predicted_ms"], seconds_of(call, rows, precision) * 1e3)
                       for call in calls if call["kernel"] != "step"})
    print(f"{'ms: roofline, with its loads':32}" + "".join(f" {f'state {i + 1}':>19}" for i in range(len(states))))
    names = sorted(set().union(*states), key=lambda name: -max(state.get(name, (0, 0))[1] for state in states))
    for name in names:
        if max(state.get(name, (0, 0))[1] for state in states) >= 0.02:
            print(f"{name:32}" + "".join(f" {state[name][0]:>9.3f} {state[name][1]:>9.3f}" if name in state else f" {'-':>9} {'-':>9}" for state in states))
    sums = [[sum(times[i] for times in state.values()) for i in range(2)] for state in states]
    print(f"{'step':32}" + "".join(f" {roofline:>9.3f} {with_loads:>9.3f}" for roofline, with_loads in sums))


if __name__ == "__main__":
    main()
