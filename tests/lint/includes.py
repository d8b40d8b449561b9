#!/usr/bin/env python3
"""Finds sources that use a name of a header of ours which they do not include, not even through other headers of ours.

Optimized builds compile a folder's sources together (docs/decisions/057), where a source may see what its neighbour
includes; others compile them one by one. Looked at are types and constants that one header alone declares, and that a
neighbour includes.

    python3 tests/lint/includes.py [ROOT]
"""

import re
import sys
from pathlib import Path

ROOMS = ("runtime", "collectives", "parallel", "training", "models", "worker", "launcher", "cluster")
DECLARED = re.compile(
    r"^(?:template <[^\n]*>\n)?(?:(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s+)?([A-Z]\w+)(?:\s+final)?\s*(?::[^;{]*)?\{"
    r"|using ([A-Z]\w+) =|(?:inline )?constexpr [^=;{]*?\b(k[A-Z]\w+)\s*[={\[])", re.MULTILINE)
COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    texts = {str(p.relative_to(root)): p.read_text() for room in ROOMS for p in sorted((root / room).rglob("*"))
             if p.suffix in (".h", ".cc")}
    headers = {}  # of each name
    for path, text in texts.items():
        if path.endswith(".h"):
            for names in DECLARED.findall(text):
                headers.setdefault(next(filter(None, names)), set()).add(path)
    of_one = {name: next(iter(paths)) for name, paths in headers.items() if len(paths) == 1}
    reached = {}

    def reach(path: str) -> set:
        if path not in reached:
            reached[path] = found = {path}
            for other in INCLUDED.findall(texts.get(path, "")):
                found |= reach(other)
        return reached[path]

    beside = {}  # what the sources of a folder reach together
    for path in texts:
        if path.endswith(".cc"):
            beside.setdefault(str(Path(path).parent), set()).update(reach(path))

    for path, text in texts.items():
        if not path.endswith(".cc"):
            continue
        code = COMMENTS.sub("", text)
        names = set(re.findall(r"(?<![.>:\w])([A-Zk][A-Z]?\w+)\b", code)) & set(of_one)
        own = set(re.findall(r"(?:class|struct|enum class|enum|using|typename|class|constexpr [^=;{]*?)\s+(\w+)", code))
        for name in sorted(names - own):
            inner = re.compile(rf"(?:class|struct|enum|using|constexpr [^=;{{]*?)\s+{name}\b")  # of a class, say
            if of_one[name] in reach(path) or of_one[name] not in beside[str(Path(path).parent)]:
                continue
            if not any(inner.search(texts.get(other, "")) for other in reach(path)):
                line = 1 + text[:re.search(rf"\b{name}\b", text).start()].count("\n")
                print(f'{path}:{line}: {name}: include "{of_one[name]}", which declares it')


if __name__ == "__main__":
    main()
