"""The names that docs/pytorch.md gives for PyTorch's are there: functions and types in a public header, options in a table
of options. usage: names.py ROOT
"""
import glob
import re
import sys

root = sys.argv[1]
page = f"{root}/docs/pytorch.md"


def text_of(*patterns):
    files = [file for pattern in patterns for file in glob.glob(f"{root}/{pattern}", recursive=True)]
    return "\n".join(open(file, encoding="utf-8").read() for file in files if file != page)


rooms = ("cluster", "collectives", "runtime", "parallel", "training")
words = set(re.findall(r"[A-Za-z_]\w*", text_of(*(f"{room}/**/*.h" for room in rooms))))
options = set(re.findall(r"^\| `--([a-z0-9_-]+)", text_of("docs/*.md"), re.MULTILINE))
commands = {"dtrain", "sweep", "export", "PROGRAM"}
checked, missing = 0, []
for line in open(page, encoding="utf-8"):
    if not line.startswith("|"):
        continue
    for code in re.findall(r"`([^`]+)`", line.rstrip("|\n").split("|")[-1]):
        for option in re.findall(r"--([a-z0-9_-]+)", code):
            checked += 1
            if option.replace("_", "-") not in options and option not in options:
                missing.append(f"--{option}")
        for word in re.findall(r"[A-Za-z_]\w{2,}", re.sub(r'"[^"]*"|--\S+( \S+)?', "", code)):
            checked += 1
            if word not in words | commands:
                missing.append(word)
if checked < 100:
    missing.append(f"at least 100 names, got {checked}")
if missing:
    sys.exit(f"{page}: expected names of public headers and options, not found: {', '.join(missing)}")
print(f"names.py: {checked} names of {page} are there")
