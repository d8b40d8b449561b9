"""Computes with NumPy what collectives must give and compares it, bit by bit, with what their ranks recorded.

    python tests/ranks/numpy_oracle.py build/ci/tests/dtrain_record_collectives          # the cases of CI
    python tests/ranks/numpy_oracle.py build/ci/tests/dtrain_record_collectives --all    # large counts everywhere

Reductions go along one tree over the ranks; float16 and bfloat16 are added up in float32 and rounded once. NCCL's
stand-in goes by rank and rounds after each. Where a reduction gives NaN any NaN will do. It prints a table: backend,
world, results compared, wrong. The comparison is tested itself: one bit of one result of every kind is turned over.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

FLOATS = ["float32", "float64", "float16", "bfloat16"]
DTYPES = FLOATS + ["int64", "int32", "int16", "int8", "uint8", "bool"]
STORED = {"bfloat16": "uint16", "bool": "uint8"}  # what NumPy has no name for, or would not tell 1 from 2
NOT_IN_NCCL = ["int16", "bool"]
BACKENDS = ["self", "threads", "tcp", "tcp_shm", "gloo", "gloo_shm", "mpi", "mpi_shm", "nccl", "nccl_host",
            "threads ring one", "threads tree one", "tcp_shm hierarchical pairs"]
WORLDS = [1, 2, 3, 4, 7]
LARGE = 200_003
REDUCTIONS = ["all_reduce", "reduce_scatter", "reduce"]


def stored(dtype):
    return numpy.dtype(STORED.get(dtype, dtype))


def widen(dtype, values):
    """To the type in which ranks' contributions are combined."""
    if dtype == "bfloat16":
        return (values.astype(numpy.uint32) << 16).view(numpy.float32)
    if dtype == "float16":
        return values.astype(numpy.float32)
    return values != 0 if dtype == "bool" else values


def narrow(dtype, values):
    """Back, to the nearest, ties to even."""
    if dtype != "bfloat16":
        return values.astype(stored(dtype))
    low = values.view(numpy.uint32) & numpy.uint32(0xFFFF0000)  # towards zero
    high = low + numpy.uint32(0x10000)
    value = values.astype(numpy.float64)
    # What lies above the largest finite number is as far away as if exponents continued.
    upper = high.view(numpy.float32).astype(numpy.float64)
    upper = numpy.where(numpy.isinf(upper), numpy.copysign(2.0**128, value), upper)
    below, above = abs(value - low.view(numpy.float32)), abs(upper - value)
    is_odd = (low >> 16) & 1 == 1
    rounded = numpy.where((above < below) | ((above == below) & is_odd), high, low)
    rounded = numpy.where(numpy.isinf(values), low, rounded)
    return numpy.where(numpy.isnan(values), 0x7FC0, rounded >> 16).astype(numpy.uint16)


def combine(dtype, op, contributions, rounds_each_time):
    operations = {
        "sum": numpy.logical_or if dtype == "bool" else numpy.add,
        "prod": numpy.logical_and if dtype == "bool" else numpy.multiply,
        "max": lambda a, b: numpy.where(b > a, b, a),  # the earlier where neither is greater
        "min": lambda a, b: numpy.where(b < a, b, a),
    }

    def step(total, contribution):
        total = operations[op](total, contribution)
        return widen(dtype, narrow(dtype, total))

    def along_the_tree(terms):  # the largest power of two below their number is on the left
        if len(terms) == 1:
            return terms[0]
        left = 1 << (len(terms) - 1).bit_length() - 1
        return operations[op](along_the_tree(terms[:left]), along_the_tree(terms[left:]))

    wide = [widen(dtype, contribution) for contribution in contributions]
    # NCCL's order is its own; the emulated one adds by rank.
    return narrow(dtype, functools.reduce(step, wide[1:], wide[0]) if rounds_each_time else along_the_tree(wide))


class Rank:
    """What one rank recorded."""

    def __init__(self, folder, rank):
        self.data = numpy.memmap(folder / f"rank-{rank}.bin", dtype=numpy.uint8, mode="r")
        self.lines = [json.loads(line) for line in open(folder / f"rank-{rank}.jsonl", encoding="utf-8")]

    def arrays(self, line, side):
        dtype = stored(line["dtype"])
        return [numpy.frombuffer(self.data, dtype, count, offset) if count else numpy.empty(0, dtype)
                for offset, count in line[side]]


def expected_messages(lines, inputs):
    """What every rank receives: from each sender its messages to this rank, in their order."""
    under_way = collections.defaultdict(collections.deque)
    for sender, (line, mine) in enumerate(zip(lines, inputs)):
        for to, message in zip(line["to"], mine):
            under_way[sender, to].append(message)
    taken = [[under_way[sender, rank].popleft() if under_way[sender, rank] else None for sender in line["from"]]
             for rank, line in enumerate(lines)]
    if any(under_way.values()):
        raise ValueError("a message was not received")
    return taken


def expected(lines, inputs, rounds_each_time):
    """A list of results for every rank."""
    line, world = lines[0], len(lines)
    call, root = line["call"], line["root"]
    if call in ("send", "exchange", "offer"):
        return expected_messages(lines, inputs)
    own = [mine[0] for mine in inputs]
    if call in REDUCTIONS:
        total = combine(line["dtype"], line["op"], own, rounds_each_time)
        if call == "all_reduce":
            return [[total]] * world
        if call == "reduce":
            return [[total if rank == root else own[rank]] for rank in range(world)]
        return [[part] for part in numpy.split(total, world)]
    if call == "all_gather":
        return [[numpy.concatenate(own)]] * world
    if call == "broadcast":
        return [[own[root]]] * world
    if call == "gather":
        return [[numpy.concatenate(own)] if rank == root else [] for rank in range(world)]
    if call == "scatter":
        return [[part] for part in numpy.split(own[root], world)]
    if call == "all_to_all":
        parts = [numpy.split(mine, numpy.cumsum(line["sends"])[:-1]) for line, mine in zip(lines, own)]
        return [[numpy.concatenate([parts[sender][rank] for sender in range(world)])] for rank in range(world)]
    raise ValueError(f"unknown call {call}")


def differing(line, got, right):
    """Indices at which a result is wrong; None when it does not even have that many elements."""
    if right is None or len(got) != len(right):
        return None
    as_bits = numpy.dtype(f"u{got.dtype.itemsize}")
    wrong = got.view(as_bits) != right.view(as_bits)
    if line["call"] in REDUCTIONS and line["dtype"] in FLOATS and wrong.any():
        wrong &= ~(numpy.isnan(widen(line["dtype"], got)) & numpy.isnan(widen(line["dtype"], right)))
    return numpy.flatnonzero(wrong)


class Tally:
    def __init__(self):
        self.results, self.elements, self.wrong, self.damage_seen, self.damage_missed = 0, 0, 0, set(), []

    def compare(self, where, line, got, right):
        self.results += 1
        self.elements += len(got)
        wrong = differing(line, got, right)
        if wrong is not None and len(wrong) == 0:
            return self.test_comparison(where, line, got, right)
        self.wrong += 1
        if self.wrong <= 5:
            root = f", root {line['root']}" if line["root"] >= 0 else ""
            what = f"{where}: {line['call']}({line['dtype']} x {line['count']} {line['op']}".rstrip() + root + ")"
            if wrong is None:
                print(f"{what}: {len(got)} elements, expected {None if right is None else len(right)}")
            else:
                at = wrong[0]
                print(f"{what}: {len(wrong)} of {len(got)} elements differ, the first at {at}: "
                      f"bits {got[at].tobytes()[::-1].hex()}, expected {right[at].tobytes()[::-1].hex()}")

    def test_comparison(self, where, line, got, right):
        """Turns a bit of one result of each kind over, which must be seen."""
        kind = (line["call"], line["op"], line["dtype"])
        if kind in self.damage_seen or len(got) == 0:
            return
        damaged = got.copy()
        at = len(got) // 2
        if line["dtype"] in FLOATS and numpy.isnan(widen(line["dtype"], damaged[at:at + 1]))[0]:
            return  # any NaN will do: another result of this kind has its turn
        damaged.view(numpy.uint8)[at * damaged.itemsize] ^= 1
        seen = differing(line, damaged, right)
        if list(seen) != [at]:
            self.damage_missed.append(f"{where}: {kind}")
        else:
            self.damage_seen.add(kind)


def compare_world(folder, backend, world, tally):
    ranks = [Rank(folder, rank) for rank in range(world)]
    if len({len(rank.lines) for rank in ranks}) != 1 or not ranks[0].lines:
        raise ValueError(f"{backend}, {world} ranks: expected as many calls of each, got "
                         f"{[len(rank.lines) for rank in ranks]}")
    for lines in zip(*(rank.lines for rank in ranks)):
        inputs = [rank.arrays(line, "in") for rank, line in zip(ranks, lines)]
        right = expected(lines, inputs, backend.startswith("nccl"))
        for index, (rank, line) in enumerate(zip(ranks, lines)):
            got = rank.arrays(line, "out")
            if len(got) != len(right[index]):
                raise ValueError(f"{backend}, rank {index} of {world}: {line}: expected {len(right[index])} results")
            for one, other in zip(got, right[index]):
                tally.compare(f"{backend}, rank {index} of {world}", line, one, other)


def record(program, folder, backend, world, dtypes, counts):
    """Runs the ranks; None when this build has not got the backend."""
    environment = os.environ | {
        "DTRAIN_RECORD_FOLDER": str(folder),
        "DTRAIN_RECORD_DTYPES": " ".join(dtypes),
        "DTRAIN_RECORD_COUNTS": " ".join(map(str, counts)),
        "DTRAIN_RECORD_MEMORY": "host" if backend == "nccl_host" else "device",
    }
    ended = subprocess.run([program, backend.removesuffix("_host"), str(world)], env=environment, text=True,
                           stdout=subprocess.PIPE, check=False)
    if ended.returncode not in (0, 77):
        sys.exit(f"FAILED: {ended.stdout}exit code {ended.returncode}")
    return ended.returncode == 0


def batches(backend, world, is_all):
    """Dtypes and counts that are recorded at once; then the files are deleted."""
    dtypes = [dtype for dtype in DTYPES if not (backend.startswith("nccl") and dtype in NOT_IN_NCCL)]
    if is_all:
        return [([dtype], [0, 1, 1003, LARGE]) for dtype in dtypes]
    # A large count of one dtype, of another one for each world and backend, where that is not too much to record.
    large = dtypes[(BACKENDS.index(backend) + WORLDS.index(world)) % len(dtypes)]
    return [(dtypes, [0, 1, 37])] + ([([large], [LARGE])] if world in (2, 3) else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="dtrain_record_collectives")
    parser.add_argument("--all", action="store_true", help="every dtype, root and world with every count")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="some of: %(default)s")
    parser.add_argument("--worlds", default=",".join(map(str, WORLDS)), help="some of: %(default)s")
    arguments = parser.parse_args()
    numpy.seterr(all="ignore")  # overflow and NaN are among the cases
    tallies, seen, missed = [], set(), []
    print(f"{'backend':<26} {'world':>5} {'results':>8} {'elements':>12} {'wrong':>6}")
    for backend in arguments.backends.split(","):
        for world in [1] if backend == "self" else [int(world) for world in arguments.worlds.split(",")]:
            tally = Tally()
            for dtypes, counts in batches(backend, world, arguments.all):
                with tempfile.TemporaryDirectory(prefix="dtrain-numpy-") as folder:
                    if record(arguments.program, folder, backend, world, dtypes, counts):
                        compare_world(pathlib.Path(folder), backend, world, tally)
            note = "" if tally.results else "   not in this build"
            print(f"{backend:<26} {world:>5} {tally.results:>8} {tally.elements:>12} {tally.wrong:>6}{note}", flush=True)
            tallies.append(tally)
            seen |= tally.damage_seen
            missed += tally.damage_missed
    results, wrong = sum(tally.results for tally in tallies), sum(tally.wrong for tally in tallies)
    print(f"all: {results} results, {wrong} wrong")
    print(f"one bit of a right result turned over: noticed in {len(seen)} kinds of results, missed in {len(missed)}")
    for one in missed:
        print(f"missed: {one}")
    return 1 if missed or wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
