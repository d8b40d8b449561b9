"""Compares the machine code of the CUDA module's kernels with the table in the repository: a kernel must not get worse.

usage: machine_code.py MODULE [--arch sm_90|sm_80] [--write] [--table FILE]

MODULE    libdtrain_cuda.so, built for that architecture
--write   accept what was found: write the table
--table   another table than the one beside this file

Needs nvdisasm and cuobjdump: in PATH, beside nvcc, or from PyPI (nvidia-cuda-nvdisasm, nvidia-cuda-cuobjdump; tests/run.sh
installs them into build/tools). Exit code 77 where they are missing, or where the table was made with another nvcc.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import names
import sass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# Of a row's kernels the worst, and whether more is better; None: for the reader.
COLUMNS = {
    "kernels": None,
    "registers": None,
    "occupancy": True,  # percent, in blocks of 256 threads
    "local": False,  # loads and stores of a thread's own memory: spills
    "load": True,  # bytes of the widest load
    "narrow": False,  # loads that are narrower
    "store": True,  # bytes of the widest store
    "in_flight": True,  # bytes of a thread on their way before the first is used
    "double": False,  # instructions in double precision
    "generic": False,  # accesses that do not know which memory they are of
    "div64": False,  # divisions of 64-bit integers
}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def find_tool(name):
    folders = glob.glob(os.path.join(ROOT, "build/tools/sass/lib/python3*/site-packages/nvidia/*/bin"))
    folders += os.environ.get("PATH", "").split(os.pathsep) + ["/usr/local/cuda/bin"]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        skip(f"no {name}; tests/run.sh installs nvidia-cuda-{name} from PyPI into build/tools/sass")
    return found


def text_of(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def resources_of(cuobjdump, cubin):
    """Mangled name: (registers, bytes of shared memory)."""
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+)"
    return {name: (int(registers), int(shared)) for name, registers, shared in
            re.findall(pattern, text_of(cuobjdump, "--dump-resource-usage", cubin))}


def kernels_of(cubin, tools, architecture):
    """(mangled name, figures of one kernel) of all kernels in a cubin."""
    resources = resources_of(tools["cuobjdump"], cubin)
    result = []
    for function in sass.read_functions(text_of(tools["nvdisasm"], "-c", cubin).splitlines()):
        registers, shared = resources[function.name]
        counts = sass.count(function)
        result.append((function.name, {
            "kernels": 1, "registers": registers, "occupancy": sass.occupancy(registers, shared, architecture),
            "local": counts.local, "load": counts.widest_load, "narrow": counts.narrow_loads, "store": counts.widest_store,
            "in_flight": counts.in_flight, "double": counts.doubles, "generic": counts.generic, "div64": counts.long_divisions}))
    return result


def worst(rows):
    joined = dict(rows[0])
    for row in rows[1:]:
        for column, more_is_better in COLUMNS.items():
            joined[column] = (min if more_is_better else max)(joined[column], row[column])
    joined["kernels"] = len(rows)
    return joined


def read_module(module, architecture):
    """Row: its figures, of all kernels of the module."""
    tools = {name: find_tool(name) for name in ("nvdisasm", "cuobjdump")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tools["cuobjdump"], "-xelf", architecture, os.path.abspath(module)], cwd=folder, check=True, capture_output=True)
        cubins = sorted(glob.glob(os.path.join(folder, "*.cubin")), key=os.path.getsize, reverse=True)
        if not cubins:
            skip(f"{module} has no code for {architecture} (-DCMAKE_CUDA_ARCHITECTURES)")
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            found = [kernel for part in pool.map(kernels_of, cubins, [tools] * len(cubins), [architecture] * len(cubins)) for kernel in part]
    plain = subprocess.run(["c++filt"], input="\n".join(name for name, _ in found), capture_output=True, text=True, check=True).stdout
    rows = {}
    for demangled, (_, figures) in zip(plain.splitlines(), found):
        rows.setdefault(names.row_of(demangled), []).append(figures)
    return {name: worst(rows[name]) for name in sorted(rows)}


def table_text(rows, compiler):
    lines = [f"# {compiler}", "\t".join(["kernel", *COLUMNS])]
    lines += ["\t".join([name, *(str(figures[column]) for column in COLUMNS)]) for name, figures in rows.items()]
    return "\n".join(lines) + "\n"


def read_table(path):
    """(the nvcc it was made with, rows)."""
    with open(path, encoding="utf-8") as file:
        first, heads, *lines = file.read().splitlines()
    columns = heads.split("\t")[1:]
    rows = {}
    for line in lines:
        name, *figures = line.split("\t")
        rows[name] = dict(zip(columns, map(int, figures)))
    return first.removeprefix("# "), rows


def compare(expected, found):
    """(what is worse, what is better), a line each."""
    worse, better = [], []
    for name in sorted(expected.keys() | found.keys()):
        if name not in expected or name not in found:
            worse.append(f"{name}: expected {'a row' if name in found else 'a kernel'}, got none")
            continue
        for column, more_is_better in COLUMNS.items():
            before, now = expected[name][column], found[name][column]
            if more_is_better is None or now == before:
                continue
            (better if (now > before) == more_is_better else worse).append(f"{name}: {column}: expected {before}, got {now}")
    return worse, better


def nvcc_version():
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + os.pathsep + "/usr/local/cuda/bin")
    if nvcc is None:
        skip("no nvcc")
    return "nvcc " + re.search(r"release ([\d.]+)", text_of(nvcc, "--version"))[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--arch", default="sm_90", choices=["sm_80", "sm_90"])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table")
    options = parser.parse_args()
    path = options.table or os.path.join(HERE, f"kernels.{options.arch}.tsv")
    compiler = nvcc_version()
    if not options.write and (made_with := read_table(path)[0]) != compiler:
        skip(f"{os.path.relpath(path, ROOT)} was made with {made_with}, the module with {compiler}")
    found = read_module(options.module, options.arch)
    if options.write:
        with open(path, "w", encoding="utf-8") as file:
            file.write(table_text(found, compiler))
        return
    worse, better = compare(read_table(path)[1], found)
    accept = f"python3 {os.path.relpath(__file__, ROOT)} {os.path.relpath(options.module, ROOT)} --arch {options.arch} --write"
    for line in better:
        print(f"better: {line}")
    for line in worse:
        print(f"worse: {line}")
    print(f"{len(found)} rows, {sum(row['kernels'] for row in found.values())} kernels for {options.arch}: {len(worse)} worse than "
          f"{os.path.relpath(path, ROOT)}, {len(better)} better" + (f"; to accept: {accept}" if worse or better else ""))
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
