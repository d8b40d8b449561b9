"""The kernels of a run's last training step, the longest first, out of what trace_kernels.cc wrote; the last line is their sum.

usage: kernel_times.py TRACE        made by kernel_times.sh
"""
import re
import subprocess
import sys


def short(name):
    """A kernel's name and its first template arguments, without namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|void ", "", name)
    name = re.sub(r"\b\w+::", "", name)
    return re.sub(r"\(.*", "", name)[:80]


def read(trace):
    """[(start, end, kernel)] in ns, in the order in which they began."""
    with open(trace) as lines:
        rows = [line.rstrip("\n").split(" ", 2) for line in lines]
    names = sorted({row[2] for row in rows})
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    named = dict(zip(names, map(short, plain)))
    return sorted((int(start), int(end), named[name]) for start, end, name in rows)


def last_step(kernels):
    """Those after the last update but one, the last one included. An update is a run of step_kernels."""
    updates = [i for i, (_, _, name) in enumerate(kernels) if name.startswith("step_kernel")]
    if not updates:
        sys.exit("kernel_times.py: no update (step_kernel) among the kernels")
    before = [i for i in updates if i + 1 < len(kernels) and i + 1 not in updates and i < updates[-1]]
    return kernels[before[-1] + 1 : updates[-1] + 1] if before else kernels[: updates[-1] + 1]


def main():
    step = last_step(read(sys.argv[1]))
    kinds = {}
    for start, end, name in step:
        kinds.setdefault(name, []).append((end - start) / 1e6)
    busy = sum(map(sum, kinds.values()))
    print(f"{'kernel':80} {'calls':>5} {'ms':>8} {'longest':>8} {'share':>6}")
    for name, times in sorted(kinds.items(), key=lambda kind: -sum(kind[1])):
        print(f"{name:80} {len(times):5} {sum(times):8.3f} {max(times):8.3f} {100 * sum(times) / busy:5.1f}%")
    whole = (step[-1][1] - step[0][0]) / 1e6
    print(f"{len(step)} kernels and copies: {busy:.3f} ms of {whole:.3f} ms from the first to the last of a step")


if __name__ == "__main__":
    main()
