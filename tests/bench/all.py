"""Every comparison with another program in one command: in each round all sides of all comparisons once, in turns. Prints
one table with medians, spread and ratios, and says what became slower than the table in the repository. Exits with 1
where something did.

usage: all.py [--rounds 3] [--only TEXT] [--out FILE] [--table FILE] [--write] [--page FILE]
  --only TEXT   comparisons whose name contains TEXT; several, separated by commas
  --out FILE    everything measured, as JSON
  --table FILE  the table to compare with [tests/bench/table.json]; --write replaces it by what was measured
  --page FILE   measure nothing; write the table into this page, between its markers; with --check only say whether it is there
DTRAIN_BIN: where dtrain and dtrain-launch are (default build/release/bin). DTRAIN_LLMC: a checkout of llm.c, to compare with
its GPT-2 for CPUs, too. Run it with a Python that has torch for the
comparisons with PyTorch; comparisons whose other side is not here are left out, and named.

What is compared with the table are ratios to the best other side, which say the same on another machine of the kind: a
row became slower when its median ratio fell by more than a tenth and every round is below the median of the table.
"""
import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import textwrap
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peer"))

import comparisons  # noqa: E402

OURS = "dtrain"
FELL_BY = 0.1
BEGIN, END = "<!-- begin of the table of tests/bench/all.py -->", "<!-- end of the table -->"


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="")
    p.add_argument("--out")
    p.add_argument("--table", default=str(HERE / "table.json"))
    p.add_argument("--write", action="store_true")
    p.add_argument("--page")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    if a.rounds < 1:
        p.error(f"--rounds: expected 1 or more, got {a.rounds}")
    return a


def measure(rounds, wanted, folder):
    """{"name", "unit", "sides": {side: [a value a round]}} of each comparison, and why others were left out."""
    found, left_out = {}, {}
    for one in comparisons.ALL:
        if not any(text in one.name for text in wanted):
            continue
        missing = one.missing()
        if missing:
            left_out[one.name] = missing
        else:
            found[one.name] = {"name": one.name, "unit": one.unit, "sides": {}}
    for number in range(rounds):
        for one in comparisons.ALL:
            if one.name not in found:
                continue
            print(f"round {number + 1} of {rounds}: {one.name}", file=sys.stderr, flush=True)
            for side, value in one.measure(number, folder).items():
                if math.isnan(value):
                    left_out[f"{one.name}, {side}, round {number + 1}"] = "it hung"
                else:
                    found[one.name]["sides"].setdefault(side, []).append(value)
    return list(found.values()), left_out


def ratios(row):
    """By round: the time of the best other side, by its median, over ours."""
    others = [values for side, values in row["sides"].items() if side != OURS]
    best = min(others, key=statistics.median)
    return [theirs / ours for theirs, ours in zip(best, row["sides"][OURS])]


def became_slower(rows, table):
    """A sentence for each of `rows` that is behind the one of the same name in `table`."""
    before = {row["name"]: row for row in table["rows"]}
    for row in rows:
        if row["name"] not in before:
            continue
        now, then = ratios(row), statistics.median(ratios(before[row["name"]]))
        if statistics.median(now) < (1 - FELL_BY) * then and max(now) < then:
            yield f"{row['name']}: {statistics.median(now):.2f} times the speed of the best other side, {then:.2f} in the table"


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread(values):
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def markdown(table):
    lines = ["| | dtrain | others: their time, and its ratio to dtrain's |", "|---|---|---|"]
    for row in table["rows"]:
        ours = statistics.median(row["sides"][OURS])
        others = [f"{side} {spread(values)}: {statistics.median(values) / ours:.2f}×"
                  for side, values in row["sides"].items() if side != OURS]
        lines.append(f"| {row['name']}, {row['unit']} | {spread(row['sides'][OURS])} | {'; '.join(others)} |")
    about = (f"Medians of {table['rounds']} rounds (least to most), {table['date']}. {table['machine']}. "
             f"{', '.join(f'{name} {version}' for name, version in table['versions'].items())}.")
    lines += ["", *textwrap.wrap(about, 120)]
    for name, why in table["left_out"].items():
        lines.append(f"Left out: {name} ({why}).")
    return "\n".join(lines)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.2f}"


def with_table(page, table):
    """The text of `page` with the table between its markers."""
    text = page.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{page}: expected the lines '{BEGIN}' and '{END}' with the table between them, got no such lines")
    return f"{before}{BEGIN}\n{markdown(table)}\n{END}{after}"


def bring_up_to_date(page, table, only_check):
    text = with_table(page, table)
    if text == page.read_text():
        return 0
    if only_check:
        print(f"{page}: expected the table of tests/bench/table.json, got another; run: python3 tests/bench/all.py --page {page}")
        return 1
    page.write_text(text)
    print(f"{page}: brought up to date")
    return 0


def main():
    a = parse_arguments()
    kept = Path(a.table)
    if a.page:
        return bring_up_to_date(Path(a.page), json.loads(kept.read_text()), a.check)
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        rows, left_out = measure(a.rounds, a.only.split(","), Path(folder))
    if not rows:
        raise SystemExit(f"--only {a.only}: expected a part of a comparison's name that can be made here, got none; "
                         f"left out: {left_out or 'none'}")
    table = {"date": time.strftime("%Y-%m-%d"), "rounds": a.rounds, "machine": before, "versions": comparisons.versions(),
             "left_out": left_out, "rows": rows}
    print(markdown(table))
    slower = list(became_slower(rows, json.loads(kept.read_text()))) if kept.exists() and not a.write else []
    for path in [a.out] * bool(a.out) + [a.table] * a.write:
        Path(path).write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    if slower:
        print("\nslower than the table:\n" + "\n".join(slower))
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
