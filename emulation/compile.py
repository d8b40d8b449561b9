"""Compiles CUDA programs for the emulated machine, their sources unchanged: what only nvcc can read (launches, dynamic
shared memory) is rewritten on the way to the host compiler. For trying programs out; dtrain's own kernels are written
so that both compilers read them.

usage: compile.py --library libcuda_emulation.a [--include FOLDER…] [--cxx g++] SOURCE… -o PROGRAM
       compile.py -c [--include FOLDER…] [--cxx g++] SOURCE -o OBJECT
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent


def masked(text):
    """The text with its comments and literals blanked, so that what is found in it is code."""
    blank = lambda found: re.sub(r"[^\n]", " ", found.group())
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", blank, text, flags=re.S)


def closing(code, at):
    """Where the bracket opened at code[at] closes."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    raise ValueError("a bracket is never closed")


def split(text):
    """At the commas outside brackets, comments and literals."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(masked(text)):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [part.strip() for part in parts + [text[last:]]]


def kernel_before(code, end):
    """Where the name of the kernel before `end` begins: a name, perhaps with template arguments."""
    at = end
    while code[at - 1].isspace():
        at -= 1
    if code[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (code[at] == ">") - (code[at] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:]", code[at - 1]):
        at -= 1
    return at


def rewrite_launches(text):
    after = 0
    while (at := (code := masked(text)).find("<<<", after)) >= 0:
        begin = kernel_before(code, at)
        name, end = text[begin:at].strip(), code.index(">>>", at)
        how = split(text[at + 3:end])
        how += ["0", "nullptr"][len(how) - 2:]
        opened = code.index("(", end)
        closed = closing(code, opened)
        given = text[opened + 1:closed].strip()
        call = f"EMULATED_CUDA_LAUNCH(({name}), {', '.join(f'({part})' for part in how)}{', ' if given else ''}{given})"
        text = text[:begin] + call + text[closed + 1:]
        after = begin
    return text


def register_kernels(text):
    """What nvcc's code does when a program starts: kernels are known by their address. Templates are not."""
    code, found = masked(text), []
    for match in re.finditer(r"\b__global__\b", code):
        if code[:match.start()].rstrip().endswith(">"):
            continue
        named = re.compile(r"(?!__launch_bounds__)\b(\w+)\s*\(").search(re.sub(r"__launch_bounds__\s*\([^)]*\)", lambda f: " " * len(f.group()), code),
                                                                     match.end())
        body = closing(code, named.end() - 1) + 1
        body += len(code[body:]) - len(code[body:].lstrip())
        if code[body] == "{":  # and not declared only
            found.append((named.group(1), closing(code, body) + 1))
    names = [name for name, _ in found]
    for name, end in reversed(found):
        if names.count(name) == 1:
            text = text[:end] + f"\nstatic const bool emulated_kernel_{name} = ::emulation::register_kernel({name}, \"{name}\");\n" + text[end:]
    return text


def register_addresses(text):
    """An instance of a kernel template whose address is taken as a void pointer is known from then on."""
    after = 0
    taken = re.compile(r"\(\s*(?:void\s+const|const\s+void|void)\s*\*\s*\)\s*&\s*[\w:]+\s*<")
    while found := taken.search(masked(text), after):
        code, depth, at = masked(text), 1, found.end()
        while depth > 0:
            depth += (code[at] == "<") - (code[at] == ">")
            at += 1
        begin = code.index("&", found.start())
        kernel = text[begin:at]
        text = text[:begin] + f"::emulation::registered({kernel})" + text[at:]
        after = at
    return text


# Instructions that are one function of CUDA's: the function, and its arguments' numbers.
instructions = {
    "red.global.add.u64 [%0],%1;": "atomicAdd(reinterpret_cast<unsigned long long*>({0}), static_cast<unsigned long long>({1}))",
}


def rewrite_ptx(text):
    after = 0
    while found := re.compile(r"\basm\s*(?:volatile)?\s*\(").search(masked(text), after):
        end = closing(masked(text), found.end() - 1)
        inside = text[found.end():end]
        instruction = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', inside.split(":")[0]))
        given = re.findall(r'"[^"]*"\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)', inside)
        call = f'::emulation::device::no_such_instruction("{instruction}")'
        if instruction in instructions:
            call = instructions[instruction].format(*given)
        text = text[:found.start()] + call + text[end + 1:]
        after = found.start() + len(call)
    return text


def rewrite(text):
    text = re.sub(r"extern\s+__shared__\s+([\w: ]+?)\s+(\w+)\s*\[\s*\]\s*;",
                  r"\1* const \2 = static_cast<\1*>(::emulation::device::dynamic_shared());", text)
    return register_kernels(register_addresses(rewrite_launches(rewrite_ptx(text))))


def read(source):
    return source.read_bytes().decode("utf-8", "surrogateescape")


def write(copy, text):
    copy.write_bytes(text.encode("utf-8", "surrogateescape"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    parser.add_argument("-c", dest="only_compiles", action="store_true", help="do not link: SOURCE becomes an object file")
    parser.add_argument("--library", help="libcuda_emulation.a, to link")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("-o", dest="program", required=True)
    given = parser.parse_args()
    if given.only_compiles and len(given.sources) > 1:
        parser.error(f"-c: expected one SOURCE, got {len(given.sources)}")
    if not given.only_compiles and given.library is None:
        parser.error("--library: expected the path of libcuda_emulation.a, or -c")
    folders = [here / "include", here.parent]
    with tempfile.TemporaryDirectory() as folder:
        options = ["-std=c++20", "-O2", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-fsanitize=thread",
                   "--param=tsan-instrument-func-entry-exit=0", "-w", "-include", "emulated_cuda.h", "-include", "emulated_source.h"]
        options += [f"-I{f}" for f in folders] + [f"-I{s.resolve().parent}" for s in given.sources]
        options += [f"-I{f}" for f in given.include]
        objects = []
        for source in given.sources:
            # Beside the source are the headers that only it includes; they may hold kernels, too.
            for header in [h for suffix in ("h", "cuh", "cu") for h in source.resolve().parent.glob(f"*.{suffix}")]:
                write(pathlib.Path(folder) / header.name, rewrite(read(header)))
            copy = pathlib.Path(folder) / (source.name + ".cc")
            write(copy, rewrite(read(source)))
            objects.append(given.program if given.only_compiles else str(copy) + ".o")
            subprocess.run([given.cxx, *options, "-c", str(copy), "-o", objects[-1]], check=True)
        if given.only_compiles:
            return
        subprocess.run([given.cxx, *objects, given.library, "-lpthread", "-o", given.program], check=True)


try:
    main()
except subprocess.CalledProcessError as failed:
    sys.exit(failed.returncode)
