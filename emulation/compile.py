"""Compiles CUDA programs for the emulated machine, their sources unchanged: what only nvcc can read (launches, dynamic
shared memory) is rewritten on the way to the host compiler. For trying programs out; dtrain's own kernels are written
so that both compilers read them.

usage: compile.py --library libcuda_emulation.a [--include FOLDER…] [--cxx g++] SOURCE… -o PROGRAM
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent


def closing(text, at):
    """Where the bracket opened at text[at] closes."""
    depth = 0
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    raise ValueError("a bracket is never closed")


def split(text):
    """At the commas outside brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [part.strip() for part in parts + [text[last:]]]


def kernel_before(text, end):
    """Where the name of the kernel before `end` begins: a name, perhaps with template arguments."""
    at = end
    while text[at - 1].isspace():
        at -= 1
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ">") - (text[at] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:]", text[at - 1]):
        at -= 1
    return at


def rewrite(text):
    text = re.sub(r"extern\s+__shared__\s+([\w: ]+?)\s+(\w+)\s*\[\s*\]\s*;",
                  r"\1* const \2 = static_cast<\1*>(::emulation::device::dynamic_shared());", text)
    after = 0
    while (at := text.find("<<<", after)) >= 0:
        after = at + 3
        if "//" in text[text.rfind("\n", 0, at) + 1:at]:
            continue
        begin = kernel_before(text, at)
        name, end = text[begin:at].strip(), text.index(">>>", at)
        how = split(text[at + 3:end])
        how += ["0", "nullptr"][len(how) - 2:]
        opened = text.index("(", end)
        closed = closing(text, opened)
        given = text[opened + 1:closed].strip()
        call = f"EMULATED_CUDA_LAUNCH(({name}), {', '.join(f'({part})' for part in how)}{', ' if given else ''}{given})"
        text = text[:begin] + call + text[closed + 1:]
        after = begin
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    parser.add_argument("--library", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("-o", dest="program", required=True)
    given = parser.parse_args()
    folders = [here / "include", here.parent]
    with tempfile.TemporaryDirectory() as folder:
        options = ["-std=c++20", "-O2", "-fno-strict-aliasing", "-ffp-contract=off", "-fsanitize=thread",
                   "--param=tsan-instrument-func-entry-exit=0", "-w", "-include", "emulated_cuda.h"]
        options += [f"-I{f}" for f in folders] + [f"-I{s.resolve().parent}" for s in given.sources]
        options += [f"-I{f}" for f in given.include]
        objects = []
        for source in given.sources:
            copy = pathlib.Path(folder) / (source.name + ".cc")
            copy.write_text(rewrite(source.read_text()))
            objects.append(str(copy) + ".o")
            subprocess.run([given.cxx, *options, "-c", str(copy), "-o", objects[-1]], check=True)
        subprocess.run([given.cxx, *objects, given.library, "-lpthread", "-o", given.program], check=True)


try:
    main()
except subprocess.CalledProcessError as failed:
    sys.exit(failed.returncode)
