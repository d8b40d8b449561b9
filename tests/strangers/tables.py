"""Reads every CSV file of some packages with dtrain and with pandas and compares all their numbers.

A column of numbers must be the same float32 on both sides; of any other column dtrain must name the first cell
that is no number, as Python's float() sees it; a file whose rows differ in length must be refused.

usage: tables.py READ_TABLE [--verbose]
"""
import csv
import gzip
import importlib
import io
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy
import pandas

PACKAGES = ("statsmodels", "sklearn", "vega_datasets")
# From version 3 on pandas reads every number as Python does, unasked.
EXACT = {"float_precision": "round_trip"} if int(pandas.__version__.split(".")[0]) < 3 else {}


@dataclass
class Table:
    path: pathlib.Path
    delimiter: str
    text: str
    rows: list  # as Python's csv module reads them, the header first


def files():
    for package in PACKAGES:
        folder = pathlib.Path(importlib.import_module(package).__file__).parent
        yield from sorted(f for f in folder.rglob("*") if f.name.endswith((".csv", ".csv.gz")))


def open_table(path):
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    first = text.splitlines()[0]
    delimiter = max(",;\t ", key=first.count)
    if delimiter == " ":  # any number of them, also at both ends of a line
        text = re.sub(r"(?m)^ | (?=\r?$)", "", re.sub(r"[ \t]+", " ", text))
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    return Table(path, delimiter, text, rows)


def number(cell):
    """The cell as float64, None where it is none that float32 can hold."""
    cell = cell.strip(" \t")
    try:
        value = float(cell)
    except ValueError:
        return None
    finite = "_" not in cell and bool(numpy.isfinite(numpy.float32(value)))
    return value if finite else None


def read(program, table, columns):
    command = [program, str(table.path), table.delimiter, *columns]
    return subprocess.run(command, capture_output=True, timeout=120)


def refused(result, *parts):
    """What is wrong with a refusal, whose message must have all of `parts`; empty: nothing."""
    message = result.stderr.decode()
    if result.returncode != 5:
        return f"exit code {result.returncode}, expected 5: {message}"
    missing = [part for part in parts if part not in message]
    return f"expected {missing} in: {message}" if missing else ""


def first_bad(table, column):
    """The number of the first row whose cell in `column` is no number; None: there is none."""
    return next((r for r, row in enumerate(table.rows) if r > 0 and len(row) > column and number(row[column]) is None),
                None)


def names_of(table):
    """Columns that can be asked for: with a name, which no other has."""
    header = [name.strip(" \t") for name in table.rows[0]]
    if all(len(name) > 2 and name[0] == name[-1] == "'" for name in header):
        header = [name[1:-1] for name in header]
    return {i: name for i, name in enumerate(header) if name and header.count(name) == 1}


def strange(table, column):
    """Why dtrain must refuse the whole file, of which it is asked for `column`; empty: it need not."""
    plain = table.text.replace("\r\n", "\n")
    if "\r" in plain:
        return "line feed behind a carriage return"
    width = len(table.rows[0])
    ragged = next((i for i, row in enumerate(table.rows) if len(row) != width), None)
    if ragged is not None:
        bad = first_bad(table, column)
        return f"in row {bad} " if bad is not None and bad < ragged else f"{width} fields in row {ragged}"
    return "at least one row" if len(table.rows) == 1 else ""


def compare(program, table, counts):
    names = names_of(table)
    if not names:
        return []
    column, name = next(iter(names.items()))
    why = strange(table, column)
    if why:
        counts["refused files"] += 1
        fault = refused(read(program, table, [name]), why)
        return [fault] if fault else []
    faults, numeric = [], []
    for i, name in names.items():
        bad = first_bad(table, i)
        if bad is None:
            numeric.append(i)
            continue
        counts["refused columns"] += 1
        fault = refused(read(program, table, [name]), f"in row {bad} ", f"column {name}")
        faults += [f"column {name}: {fault}"] if fault else []
    if numeric:
        faults += compare_numbers(program, table, {i: names[i] for i in numeric}, counts)
    return faults


def compare_numbers(program, table, columns, counts):
    frame = pandas.read_csv(io.StringIO(table.text), sep=table.delimiter, index_col=False, header=0,
                            usecols=list(columns), **EXACT)
    expected = frame.to_numpy(dtype=numpy.float64).astype(numpy.float32)
    result = read(program, table, columns.values())
    if result.returncode != 0:
        return [result.stderr.decode()]
    found = numpy.frombuffer(result.stdout, dtype=numpy.float32)
    if found.size != expected.size:
        return [f"{found.size} numbers, pandas has {expected.size}"]
    found = found.reshape(expected.shape)
    counts["numbers"] += found.size
    # pandas has a column of integers as integers, where "-0" is 0.
    differing = numpy.argwhere((found != expected) | (numpy.signbit(found) != numpy.signbit(expected)) & (found != 0))
    return [f"row {r + 1}, column {list(columns.values())[c]}: {found[r, c]!r}, pandas has {expected[r, c]!r}"
            for r, c in differing[:3]]


def main():
    program, verbose = sys.argv[1], "--verbose" in sys.argv
    counts = {"files": 0, "numbers": 0, "refused columns": 0, "refused files": 0}
    failed = 0
    for path in files():
        counts["files"] += 1
        faults = compare(program, open_table(path), counts)
        failed += bool(faults)
        for fault in faults:
            print(f"{path}: {fault}")
        if verbose and not faults:
            print(f"{path}: ok")
    print(", ".join(f"{count} {name}" for name, count in counts.items()) + f"; {failed} files differ")
    return 1 if failed or counts["numbers"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
