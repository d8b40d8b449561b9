#!/usr/bin/env python3
"""The bill of materials of this build's programs has what they are known to be made of, each with version and licence,
and is the same each time. usage: bill.py BUILD PROGRAM...    (DTRAIN_BILLS_PYTHON: checks the schema, too)"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]


def make(build, files, output, **environment):
    subprocess.run([sys.executable, root / "cmake/make_sbom.py", "--build", build, "--name", "dtrain", "--version", "0.1.0",
                    "--output", output, *files], check=True, env={**os.environ, **environment})
    return json.loads(output.read_text())


def main():
    build, files = sys.argv[1], sys.argv[2:]
    for tool in ("ninja", "dpkg-query", "readelf", "ldd"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is missing; the bill of materials is made with it")
            sys.exit(77)
    if not os.path.exists(os.path.join(build, "build.ninja")):
        print(f"skipped: {build} is no build of ninja's, whose log says which headers were read")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        bill = make(build, files, folder / "first.json", SOURCE_DATE_EPOCH="1700000000")
        make(build, files, folder / "second.json", SOURCE_DATE_EPOCH="1700000000")
        assert (folder / "first.json").read_bytes() == (folder / "second.json").read_bytes(), "two bills of one build differ"
        python = os.environ.get("DTRAIN_BILLS_PYTHON")
        if python:
            subprocess.run([python, "-c", "import sys; from cyclonedx.schema import SchemaVersion as S; "
                            "from cyclonedx.validation.json import JsonStrictValidator as V; "
                            "error = V(S.V1_5).validate_str(open(sys.argv[1]).read()); sys.exit(error and str(error))",
                            folder / "first.json"], check=True)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z", bill["metadata"]
    parts = {component["name"]: component for component in bill["components"]}

    def expect(name, how, licence):
        part = parts.get(name)
        assert part is not None, f"expected {name}, got {sorted(parts)}"
        got = {prop["value"] for prop in part["properties"] if prop["name"] == "dtrain:linked"}
        assert how in got, f"{name}: expected to be linked as {how}, got {got}"
        text = json.dumps(part["licenses"])
        assert licence in text, f"{name}: expected the licence {licence}, got {text}"
        assert part["version"][0].isdigit(), f"{name}: expected a version, got {part['version']}"

    expect("nlohmann-json3-dev", "headers", "MIT")
    expect("zlib1g", "shared", "Zlib")
    expect("libstdc++6", "shared", "GCC-exception")
    expect("libc6", "shared", "LGPL-2.1")
    assert not any("gtest" in name or "googletest" in name for name in parts), "the tests' library is in no program"
    print(f"bill.py: {len(parts)} parts: {', '.join(sorted(parts))}")


if __name__ == "__main__":
    main()
