#!/usr/bin/env python3
"""What tests/coverage.sh counts.

  coverage.py programs BUILD [FILTER] < TESTS
                                           the build's targets that the tests of `ctest --show-only=json-v1` run; those
                                           that all have in common, dtrain's own programs, without a FILTER
  coverage.py table COUNTS.json [TABLE]    lines and branches that ran, by room, from gcovr's --json; beside an earlier table
"""
import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

DEEP = ("runtime",)  # rooms that are shown folder by folder


def commands_in(build):
    """By test. ctest itself says none of a program that is not built yet."""
    commands = {}
    for file in pathlib.Path(build).rglob("CTestTestfile.cmake"):
        for name, words in re.findall(r'^add_test\(\[=\[(.*?)\]=\] (.*)\)$', file.read_text(), re.MULTILINE):
            commands[name] = re.findall(r'"(.*?)"', words)
    return commands


def programs(build, only=None):
    tests = json.load(sys.stdin)["tests"]
    commands = commands_in(build)
    words = [word for test in tests for word in commands.get(test["name"], [])]
    for test in tests:
        for found in test.get("properties", []):
            if found["name"] == "ENVIRONMENT" and not only:
                words += [value.split("=", 1)[-1] for value in found["value"]]
    named = {os.path.relpath(word, build) for word in words if word.startswith(build)}
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True)
    targets = {line.split(":")[0] for line in listed.stdout.splitlines()}
    found = named & targets
    if not only:
        folders = tuple(name + "/" for name in named - targets)
        found |= {t for t in targets if t.startswith(folders) and t.endswith("/all") and "CMakeFiles" not in t}
        found |= {"dtrain", "dtrain-launch", "examples/all"} & targets
    print("\n".join(sorted(found)))


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in DEEP and len(parts) > 2 else parts[0]


def merged(lines):
    """{number: (count, counts of branches)}: a line of a template is there once for each of its instances."""
    found = {}
    for line in lines:
        ways = [branch["count"] for branch in line.get("branches", [])]
        count, others = found.get(line["line_number"], (0, []))
        both = [max(pair) for pair in itertools.zip_longest(ways, others, fillvalue=0)]
        found[line["line_number"]] = count + line["count"], both
    return found


def counted(path):
    lines, branches = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(lambda: [0, 0])
    with open(path, encoding="utf-8") as file:
        files = json.load(file)["files"]
    for entry in files:
        room = room_of(entry["file"])
        for count, ways in merged(entry["lines"]).values():
            for key in (room, "all"):
                lines[key][0] += count > 0
                lines[key][1] += 1
                branches[key][0] += sum(way > 0 for way in ways)
                branches[key][1] += len(ways)
    return lines, branches


def percent(pair):
    return 100 * pair[0] / pair[1] if pair[1] else 0.0


def earlier(path):
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if len(words) >= 5 and words[1].isdigit():
                rows[words[0]] = float(words[2]), float(words[4])
    return rows


def table(path, before=None):
    lines, branches = counted(path)
    rows = earlier(before) if before else {}
    print(f"{'room':22}{'lines':>8}{'ran, %':>8}{'branches':>10}{'ran, %':>8}" + ("  against before" if rows else ""))
    for room in [*sorted(set(lines) - {"all"}), "all"]:
        shares = percent(lines[room]), percent(branches[room])
        change = ""
        if room in rows:
            change = f"  lines {shares[0] - rows[room][0]:+.1f}, branches {shares[1] - rows[room][1]:+.1f}"
        print(f"{room:22}{lines[room][1]:8}{shares[0]:8.1f}{branches[room][1]:10}{shares[1]:8.1f}{change}")


if __name__ == "__main__":
    {"programs": programs, "table": table}[sys.argv[1]](*sys.argv[2:])
