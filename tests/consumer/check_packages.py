#!/usr/bin/env python3
"""Checks what is in Debian packages and wheels: licence, documentation, manual pages, completion, templates, no path of
the machine that built them; and the bill of materials, against its schema (with cyclonedx-python-lib, where this Python
has it) and against what the programs in the package say they need.

usage: check_packages.py PACKAGE...    (.deb, .whl)
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# Part of every Linux system, or of the machine: no package brings or needs it.
SYSTEM = re.compile(r"^ld-linux")
OF_THE_MACHINE = re.compile(r"^lib(mpi|cublas|cublasLt|cudnn|nccl)\.so")
C_LIBRARY = re.compile(r"^lib(c|m|dl|rt|pthread)\.so")
EVERY = {".deb": ["doc/{name}/copyright", "doc/{name}/{name}.cdx.json"],
         ".whl": ["dist-info/licenses/LICENSE", "dist-info/sboms/dtrain.cdx.json", "dist-info/licenses/libraries/libfmt"]}
PROGRAMS = ["man/man1/dtrain.1", "man/man1/dtrain-train.1", "man/man1/dtrain-launch.1",
            "bash-completion/completions/dtrain-launch", "zsh/site-functions/_dtrain", "fish/vendor_completions.d/dtrain.fish",
            "templates/slurm/launcher_per_node.sbatch", "templates/kubernetes/job.yaml", "templates/mpi/run.sh",
            "doc/dtrain/CHANGELOG.md", "doc/dtrain/SECURITY.md", "doc/dtrain/compatibility.md"]
problems = []


def complain(package, text):
    problems.append(f"{package.name}: {text}")


def unpack(package, folder):
    if package.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        return package.name.split("_")[0]
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    return package.name.split("-")[0]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needed_by(path):
    text = subprocess.run(["readelf", "-d", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text), re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", text)


def check_bill(package, path, own_files, inside):
    bill = json.loads(path.read_text())
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        print(f"{package.name}: schema not checked: this Python has no cyclonedx-python-lib[json-validation]")
    else:
        error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(path.read_text())
        if error is not None:
            complain(package, f"{path.name}: expected CycloneDX 1.5, got {error}")
        else:
            print(f"{package.name}: {path.name} is CycloneDX 1.5, {len(bill['components'])} components")
    listed = {prop["value"] for component in bill["components"] for prop in component["properties"]
              if prop["name"] == "dtrain:file"}
    needed = set()
    for file in own_files:
        needed.update(name for name in needed_by(file)[0] if not SYSTEM.match(name))
    if package.suffix == ".whl":
        needed = {name for name in needed | inside if not OF_THE_MACHINE.match(name) and not C_LIBRARY.match(name)}
    # The bill has the names behind symbolic links or before: libz.so.1 is libz.so.1.2.13.
    missing = {name for name in needed if not any(file == name or file.startswith(name) for file in listed)}
    if missing:
        complain(package, f"{path.name}: expected every library that the package's files need, got none of {sorted(missing)}")
    for component in bill["components"]:
        if component["version"] == "unknown" or component["licenses"][0].get("license", {}).get("name") == "not stated":
            complain(package, f"{path.name}: {component['name']}: expected a version and a licence, got {component}")
    for component in bill["components"]:
        licence = component["licenses"][0]
        text = licence.get("expression") or licence["license"].get("id") or licence["license"]["name"]
        print(f"    {component['name']} {component['version']}: {text}")


def check(package, folder):
    name = unpack(package, folder)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    paths = [str(path.relative_to(folder)) for path in files]
    expected = [part.format(name=name) for part in EVERY[package.suffix]] + (PROGRAMS if name == "dtrain" else [])
    for part in expected:
        if not any(part in path for path in paths):
            complain(package, f"expected a file {part}, got none")
    elves = [path for path in files if is_elf(path)]
    own = [path for path in elves if re.match(r"(lib)?dtrain", path.name)]
    if not own:
        complain(package, "expected programs or modules of dtrain, got none")
    for path in own:
        for run_path in needed_by(path)[1]:
            if any(not part.startswith("$ORIGIN") for part in run_path.split(":") if part):
                complain(package, f"{path.name}: expected a run path below $ORIGIN, got {run_path}")
        if re.search(rb"/(home|work|root|tmp|src)/[^\0 ]*/(runtime|launcher|training)/", path.read_bytes()):
            complain(package, f"{path.name}: expected no path of the folder it was built in, got one")
    bills = [path for path in files if path.name.endswith(".cdx.json")]
    inside = {path.name for path in elves if path not in own}
    for bill in bills:
        check_bill(package, bill, own, inside)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for argument in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(argument), pathlib.Path(folder))
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"check_packages.py: {len(problems)} problems, above")


if __name__ == "__main__":
    main()
