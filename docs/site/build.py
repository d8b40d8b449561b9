"""Builds the documentation as a site: the repository's pages by MkDocs, with search, and the C++ reference by Doxygen.

usage: build.py OUTPUT     (apt install mkdocs doxygen)

A warning of either fails: a link to nothing, a page that is in no menu's reach, a comment that Doxygen cannot read. Open
OUTPUT/index.html, or serve the folder. Exit code 77 where MkDocs or Doxygen is missing.
"""
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)]*)?\)")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def page_names():
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "cluster/README.md", ROOT / "tests/bench/README.md"]


def title_of(page):
    return page.read_text().splitlines()[0].lstrip("# ")


def first_sentence(header):
    """Of the comment that the header begins with."""
    lines = itertools.takewhile(lambda line: line.startswith("//"), header.read_text().splitlines())
    return re.split(r"\.( |$)", " ".join(line.lstrip("/ ") for line in lines))[0] + "."


def source_page(source):
    language = {".py": "python", ".sh": "bash", ".json": "json"}.get(source.suffix, "cpp")
    return f"# {source.relative_to(ROOT)}\n\n```{language}\n{source.read_text()}```\n"


class Pages:
    """A copy of the pages below `folder`, as the repository has them, and of the files they link to as pages of code."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def copy(self, file):
        path = self.folder / file.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, path)

    def add(self, page):
        def moved(found):
            target, anchor = found.group(1), found.group(2) or ""
            path = (page.parent / target).resolve()
            if path.is_dir():
                return f"]({target.rstrip('/')}/index.md{anchor})"
            if path.suffix == ".md" or not path.is_file():
                return found.group(0)
            if path.suffix == ".png":
                self.copy(path)
                return found.group(0)
            self.write(f"{path.relative_to(ROOT)}.md", source_page(path))
            return f"]({target}.md{anchor})"

        # Code by its indentation or between backticks has no links.
        lines = [line if line.startswith("    ") else LINK.sub(moved, line) for line in page.read_text().splitlines()]
        self.write(page.relative_to(ROOT), "\n".join(lines) + "\n")

    def add_indexes(self):
        decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
        self.write("docs/decisions/index.md",
                   "# Decisions\n\n" + "".join(f"- [{title_of(page)}]({page.name})\n" for page in decisions))
        lines = []
        for program in sorted((ROOT / "examples").glob("*/main.cc")):
            name = program.relative_to(ROOT / "examples")
            self.write(f"examples/{name}.md", source_page(program))
            first = program.read_text().splitlines()[0].lstrip("/ ")
            lines.append(f"- [{name.parent}]({name}.md): {first}\n")
        self.write("examples/index.md", "# Examples\n\n" + "".join(lines))


    def add_reference(self, tags):
        """The headers, each with what its first line says; `tags`: where Doxygen put them."""
        lines = []
        for file in ElementTree.parse(tags).getroot().iterfind("compound[@kind='file']"):
            header = file.findtext("path") + file.findtext("name")
            name = header.removeprefix(f"{ROOT}/")
            if header.endswith(".h"):
                lines.append(f"| [{name}](api/{file.findtext('filename')}) | {first_sentence(ROOT / header)} |\n")
        self.write("api.md", "# API reference\n\n[Classes](api/annotated.html) and [functions](api/namespacemembers_func.html), or "
                   f"by header of `<dtrain/…>`:\n\n| header | |\n|---|---|\n{''.join(sorted(lines))}")


def public_headers():
    """What dtrain.h includes, and what that includes."""
    found, waiting = set(), ["dtrain.h"]
    while waiting:
        header = waiting.pop()
        if header in found or not (ROOT / header).is_file():
            continue
        found.add(header)
        waiting += INCLUDE.findall((ROOT / header).read_text())
    return sorted(found)


def run(what, *command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    said = result.stdout + result.stderr
    warnings = [line for line in said.splitlines() if re.search(r"warning|error", line, re.IGNORECASE)]
    if result.returncode != 0 or warnings:
        sys.exit(f"{what}: expected no warning, got exit code {result.returncode} and\n" + ("\n".join(warnings) or said))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for tool in ("mkdocs", "doxygen"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool} (apt install mkdocs doxygen)")
            sys.exit(77)
    output = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        pages = Pages(folder / "pages")
        for page in page_names():
            pages.add(page)
        pages.add_indexes()
        headers = public_headers()
        (folder / "main.md").write_text("# dtrain's C++ reference {#mainpage}\n\nThe [classes](annotated.html), the\n"
                                        "[functions](namespacemembers_func.html); back to the [pages](../index.html).\n")
        doxygen = (HERE / "Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {folder}\nHTML_OUTPUT = pages/api\n"
        doxygen += f"GENERATE_TAGFILE = {folder}/tags.xml\nSTRIP_FROM_PATH = {ROOT} {folder}\n"
        doxygen += f"INPUT = {folder}/main.md {' '.join(headers)}\n"
        run("doxygen", "doxygen", "-", input=doxygen, cwd=ROOT)
        pages.add_reference(folder / "tags.xml")
        config = folder / "mkdocs.yml"
        config.write_text((HERE / "mkdocs.yml").read_text() + f"docs_dir: {folder}/pages\nsite_dir: {output}\n")
        run("mkdocs", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config))
    print(f"{output}/index.html: {len(list(output.rglob('*.html')))} pages, {len(headers)} headers")


main()
