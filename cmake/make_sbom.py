#!/usr/bin/env python3
"""A bill of materials (CycloneDX 1.5, JSON) of built programs and modules, from what the build says and the files hold.

Shared libraries are those that the files load (ldd), static ones those on their linker's command lines, headers those
that the compiler read for their objects (ninja's log); each is named by the package it belongs to, with the licence that
the package states. Needs ninja, readelf and ldd, and dpkg where the libraries come from Debian packages.

usage: make_sbom.py --build BUILD --name NAME --version VERSION --output FILE [--bundles] [--licenses FOLDER] FILE...

  FILE...            programs and modules of the package, in the build folder
  --bundles          the package has the libraries inside (a wheel): also those that libraries load
  --outside REGEX    but not the libraries of these names
  --licenses FOLDER  with --bundles: write the licence texts of those libraries there
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid

# The standard library, the C library and the kernel's interfaces are listed where they are loaded, not for headers.
SYSTEM_SOURCES = re.compile(r"^(glibc|gcc-\d+|linux|linux-.*|llvm-toolchain-\d+)$")
# Debian's short names of licences (DEP 5) that SPDX calls otherwise.
SPDX = {
    "expat": "MIT", "mit": "MIT", "apache-2.0": "Apache-2.0", "apache-2": "Apache-2.0", "bsd-3-clause": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause", "zlib": "Zlib", "isc": "ISC", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later",
    "gpl-3": "GPL-3.0-only", "gpl-3+": "GPL-3.0-or-later", "lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later",
    "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3+": "LGPL-3.0-or-later", "libpng": "Libpng",
    "libpng-2.0": "libpng-2.0", "bsl-1.0": "BSL-1.0", "boost-1.0": "BSL-1.0", "unicode": "Unicode-DFS-2016",
}
# Of packages whose copyright file is not written for machines, by their source package.
KNOWN = {
    "zlib": ["Zlib"], "glibc": ["LGPL-2.1-or-later"], "pcre2": ["BSD-3-Clause"], "libjpeg-turbo": ["IJG", "BSD-3-Clause"],
    "libpng1.6": ["libpng-2.0"], "libwebp": ["BSD-3-Clause"], "openssl": ["Apache-2.0"], "libevent": ["BSD-3-Clause"],
    "numactl": ["LGPL-2.1-only"], "openmpi": ["BSD-3-Clause"],
}
GCC_RUNTIME = "GPL-3.0-or-later WITH GCC-exception-3.1"


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"make_sbom.py: {' '.join(map(str, command))}: expected exit code 0, got {done.returncode}: {done.stderr}")
    return done.stdout


class Packages:
    """Which package of the system a file belongs to, and what the package says of itself."""

    def __init__(self):
        self.of_file, self.described = {}, {}

    def look_up(self, files):
        """Asks dpkg once for all `files`, by the name they have and the one behind symbolic links."""
        names = {}
        for file in files:
            real = os.path.realpath(file)
            for name in {str(file), real, re.sub(r"^/usr(/lib)", r"\1", real), re.sub(r"^(/lib)", r"/usr\1", real)}:
                names.setdefault(name, set()).add(str(file))
        everything = sorted(names)
        for begin in range(0, len(everything), 500):
            try:  # unknown files are errors of dpkg's, and expected
                text = subprocess.run(["dpkg-query", "-S", *everything[begin:begin + 500]], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True, check=False).stdout
            except FileNotFoundError:
                return
            for line in text.splitlines():
                owners, _, name = line.partition(": ")
                if name in names and not owners.startswith("diversion"):
                    for file in names[name]:
                        self.of_file.setdefault(file, owners.split(",")[0].strip())

    def describe(self, package):
        if package not in self.described:
            form = "${Package}\t${source:Package}\t${Version}\t${Architecture}\t${Homepage}\n"
            name, source, version, arch, home = run(["dpkg-query", "-W", f"-f={form}", package]).splitlines()[0].split("\t")
            distribution = pathlib.Path("/etc/os-release").read_text()
            vendor = re.search(r'^ID="?([a-z]+)', distribution, re.M)
            vendor = vendor.group(1) if vendor else "debian"
            copyright_file = pathlib.Path("/usr/share/doc") / name / "copyright"
            self.described[package] = {
                "name": name, "source": source, "version": version, "home": home, "copyright": copyright_file,
                "purl": f"pkg:deb/{vendor}/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={arch}",
                "licenses": debian_licenses(copyright_file, source)}
        return self.described[package]


def debian_licenses(file, source):
    if re.match(r"gcc-\d+$", source):
        return [{"expression": GCC_RUNTIME}]
    text = file.read_text(errors="replace") if file.exists() else ""
    found = []
    if text.startswith("Format:"):
        for stanza in re.split(r"\n\s*\n", text):
            if re.search(r"^Files:\s*\*", stanza, re.M) or re.match(r"Format:", stanza):
                license_line = re.search(r"^License:[ \t]*(\S.*)$", stanza, re.M)
                if license_line:
                    found = [word.strip(" ,") for word in re.split(r"\s+(?:and/or|and|or)\s+|,", license_line.group(1))]
                    found = [word for word in found if word]
                    if stanza.lstrip().startswith("Files"):
                        break
    if not found and source in KNOWN:
        return [{"license": {"id": name}} for name in KNOWN[source]]
    if not found:
        return [{"license": {"name": f"see {file}"}}]
    known = [SPDX.get(name.lower()) for name in found]
    return [{"license": {"id": spdx} if spdx else {"name": name}} for name, spdx in zip(found, known)]


class Wheels:
    """The packages of Python that a file outside dpkg's belongs to: NVIDIA's libraries mostly."""

    def __init__(self):
        self.records = {}

    def owner(self, file):
        real = pathlib.Path(os.path.realpath(file))
        for parent in list(real.parents)[:6]:
            if parent not in self.records:
                self.records[parent] = {}
                for info in sorted([*parent.glob("*.dist-info"), *parent.glob("dist-info/*.dist-info")]):
                    record = info / "RECORD"
                    if record.exists():
                        for line in record.read_text().splitlines():
                            self.records[parent].setdefault(line.split(",")[0].rsplit("/", 1)[-1], info)
            if real.name in self.records[parent]:
                return self.describe(self.records[parent][real.name])
        return None

    @staticmethod
    def describe(info):
        header = (info / "METADATA").read_text().split("\n\n")[0] if (info / "METADATA").exists() else ""
        field = lambda name: (re.search(rf"^{name}: (.+)$", header, re.M) or [None, ""])[1]
        name, version = info.name[:-len(".dist-info")].split("-")[:2]
        name = name.replace("_", "-")
        texts = [path for path in sorted(info.rglob("*")) if re.match(r"(?i)licen|copying", path.name) and path.is_file()]
        return {"name": name, "source": name, "version": version, "home": field("Home-page"), "purl": f"pkg:pypi/{name}@{version}",
                "copyright": texts[0] if texts else None,
                "licenses": [{"license": {"name": field("License-Expression") or field("License") or "not stated"}}]}


def loaded_by(file):
    """Names to paths of all shared libraries, as the dynamic linker finds them; a path may be missing."""
    found = {}
    for line in run(["ldd", file]).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match:
            found[match.group(1)] = match.group(2) if match.group(2).startswith("/") else None
    return found


def needed_by(file):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run(["readelf", "-d", file]))


def shared_libraries(files, outside, bundles):
    """Paths of what `files` load, with `bundles` also of what that loads; names that were found nowhere."""
    paths, missing = set(), set()
    for file in files:
        found = loaded_by(file)
        to_do = [str(file)]
        seen = set()
        while to_do:
            for name in needed_by(to_do.pop()):
                if name in seen or re.search(outside, name) or name.startswith("ld-linux"):
                    continue
                seen.add(name)
                if found.get(name) is None:
                    missing.add(f"{name} of {os.path.basename(file)}")
                    continue
                paths.add(found[name])
                if bundles:
                    to_do.append(found[name])
    return paths, missing


def built_from(build, files):
    """Objects and static libraries of others that are linked into `files`, from the commands that make them."""
    targets = [os.path.relpath(file, build) for file in files]
    made_of = {}  # a program, module or archive, and what its command puts into it
    for line in run(["ninja", "-C", build, "-t", "commands", *targets]).splitlines():
        for command in line.split("&&"):
            words = command.split()
            parts = [word for word in words if word.endswith((".o", ".a"))]
            if "-o" in words and words.index("-o") + 1 < len(words) and "-c" not in words:
                made_of[words[words.index("-o") + 1]] = parts
            elif words and words[0].endswith("ar") and len(words) > 2:
                made_of[words[2]] = parts
    objects, archives, to_do = set(), set(), list(targets)
    while to_do:
        for part in made_of.pop(to_do.pop(), []):
            if part.endswith(".o"):
                objects.add(part)
            elif part in made_of:
                to_do.append(part)
            elif os.path.isabs(part) and not part.startswith(str(build) + "/"):
                archives.add(part)
    return objects, archives


def headers_of(build, objects, root):
    """Headers from outside the tree that the compiler read for these objects."""
    headers, taken = set(), False
    # -n: the build that asks may still be running, and its log is not to be written.
    for line in run(["ninja", "-n", "-C", build, "-t", "deps"]).splitlines():
        if line and not line.startswith(" "):
            taken = line.split(":")[0] in objects
        elif taken and line.strip():
            path = os.path.normpath(os.path.join(build, line.strip()))
            if not path.startswith((str(root) + "/", str(build) + "/")):
                headers.add(path)
    return headers


class Materials:
    def __init__(self):
        self.by_source, self.packages, self.wheels = {}, Packages(), Wheels()

    def add(self, files, how):
        self.packages.look_up(files)
        for file in sorted(map(str, files)):
            package = self.packages.of_file.get(file)
            about = self.packages.describe(package) if package else self.wheels.owner(file)
            if about is None:
                if how == "headers":
                    continue  # of the compiler, or of a library that is listed for its own file
                about = {"name": os.path.basename(file), "source": os.path.basename(file), "version": "unknown", "home": "",
                         "purl": None, "copyright": None, "licenses": [{"license": {"name": "not stated"}}]}
            if how == "headers":
                if SYSTEM_SOURCES.match(about["source"]):
                    continue
                same = [key for key in self.by_source if key[0] == about["source"]]
                if same:
                    for key in same:
                        self.by_source[key]["how"].add(how)
                    continue
            entry = self.by_source.setdefault((about["source"], about["name"]), {"about": about, "how": set(), "files": set()})
            entry["how"].add(how)
            if how != "headers":
                entry["files"].add(os.path.basename(file))

    def components(self):
        made = []
        for entry in sorted(self.by_source.values(), key=lambda entry: entry["about"]["name"]):
            about = entry["about"]
            component = {"type": "library", "bom-ref": about["purl"] or about["name"], "name": about["name"],
                         "version": about["version"], "licenses": about["licenses"],
                         "properties": [{"name": "dtrain:linked", "value": how} for how in sorted(entry["how"])] +
                                       [{"name": "dtrain:file", "value": file} for file in sorted(entry["files"])]}
            if about["purl"]:
                component["purl"] = about["purl"]
            if about["home"]:
                component["externalReferences"] = [{"type": "website", "url": about["home"]}]
            made.append(component)
        return made


def write_licenses(materials, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for entry in materials.by_source.values():
        text = entry["about"]["copyright"]
        if "shared" in entry["how"] and text is not None and pathlib.Path(text).exists():
            (folder / f"{entry['about']['name']}.txt").write_bytes(pathlib.Path(text).read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("build", "name", "version", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--bundles", action="store_true")
    parser.add_argument("--outside", default="^$")
    parser.add_argument("--licenses", type=pathlib.Path)
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    build = pathlib.Path(os.path.abspath(arguments.build))
    root = pathlib.Path(__file__).resolve().parent.parent

    materials = Materials()
    shared, missing = shared_libraries(arguments.files, arguments.outside, arguments.bundles)
    if missing:
        sys.exit(f"make_sbom.py: expected every library where the dynamic linker finds it, got none for: {sorted(missing)}; "
                 "install them, or build again where they are")
    objects, archives = built_from(build, arguments.files)
    if not objects:
        sys.exit(f"make_sbom.py: {build}: expected a folder that ninja has built {arguments.files} in, got no object files")
    materials.add(shared, "shared")
    materials.add(archives, "static")
    materials.add(headers_of(build, objects, root), "headers")

    components = materials.components()
    own = f"pkg:generic/{arguments.name}@{arguments.version}"
    metadata = {"component": {"type": "application", "bom-ref": own, "name": arguments.name, "version": arguments.version,
                              "purl": own, "licenses": [{"license": {"id": "Apache-2.0"}}]}}
    if os.environ.get("SOURCE_DATE_EPOCH"):
        moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))
        metadata["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    # The number names this content: the same parts, the same number.
    number = uuid.UUID(bytes=hashlib.sha256(json.dumps([own, components], sort_keys=True).encode()).digest()[:16], version=4)
    bill = {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.5",
            "serialNumber": f"urn:uuid:{number}", "version": 1, "metadata": metadata, "components": components,
            "dependencies": [{"ref": own, "dependsOn": [component["bom-ref"] for component in components]}]}
    output = pathlib.Path(arguments.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n")
    if arguments.licenses:
        write_licenses(materials, arguments.licenses)


if __name__ == "__main__":
    main()
