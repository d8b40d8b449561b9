"""What a person sees of a training at the terminal: dtrain's, Lightning's, and a script's under torchrun, as pictures.

Each runs in a terminal of tmux, 80 and 160 columns wide, with the same network and samples. A picture is taken while it
trains and one at its end, with all lines that scrolled away: FOLDER/NAME-COLUMNS-{running,end}.{txt,png}. The summary
counts lines, those that wrapped or are wider than the terminal would show, and the facts that were on them.

usage: terminals.py DTRAIN_BIN FOLDER [--only NAME] [--columns 80 160] [--epochs N]

Needs tmux, and a Python with torch, lightning and Pillow: the one that runs this.
"""
import argparse
import gzip
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import time

from PIL import Image, ImageDraw, ImageFont

from lenet import FOLDER, SAMPLES

HERE = pathlib.Path(__file__).resolve().parent
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono{}.ttf"
COLOURS = ["#2e3436", "#ef2929", "#8ae234", "#fce94f", "#729fcf", "#ad7fa8", "#34e2e2", "#eeeeec"]
PATIENCE = 300  # seconds


def small_data(folder):
    """As many samples as the others train on, for dtrain."""
    for prefix, count in (("train", SAMPLES), ("t10k", SAMPLES // 6)):
        for name, header, each in ((f"{prefix}-images-idx3-ubyte", 16, 784), (f"{prefix}-labels-idx1-ubyte", 8, 1)):
            content = gzip.decompress((FOLDER / f"{name}.gz").read_bytes())
            front = content[:4] + struct.pack(">I", count) + content[8:header]
            (folder / name).write_bytes(front + content[header:header + count * each])


def commands(bin_folder, data, runs, epochs):
    python, bins = sys.executable, pathlib.Path(sys.executable).parent
    train = (f"train --model lenet --dataset fashion-mnist --data-dir {data} --epochs {epochs} --lr 0.2 --device cpu "
             f"--threads 1 --run-dir {runs}/")
    torchrun = bins / "torchrun"
    launch = torchrun if torchrun.exists() else f"{python} -m torch.distributed.run"
    return {
        "dtrain": f"{bin_folder}/dtrain {train}alone --batch-size 128",
        "dtrain-launch": f"{bin_folder}/dtrain-launch --nproc_per_node=2 {bin_folder}/dtrain {train}two --batch-size 128",
        "lightning": f"{python} {HERE}/lightning_lenet.py {epochs} 1",
        "lightning-2": f"{python} {HERE}/lightning_lenet.py {epochs} 2",
        "torchrun": f"{launch} --nproc_per_node=2 {HERE}/ddp_lenet.py {epochs}",
    }


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", "dtrain-terminals", *arguments], capture_output=True, text=True, check=True).stdout


def watch(command, columns):
    """The terminal's lines with colours: while it trains, and at the end."""
    environment = f"OMP_NUM_THREADS=1 TERM=xterm-256color PYTHONWARNINGS={os.environ.get('PYTHONWARNINGS', 'default')}"
    tmux("new-session", "-d", "-s", "one", "-x", str(columns), "-y", "40", "bash --norc --noprofile")
    try:
        tmux("set-option", "-t", "one", "history-limit", "5000")
        tmux("send-keys", "-t", "one", f"PS1='$ ' {environment}; export OMP_NUM_THREADS; clear", "Enter")
        time.sleep(0.5)
        tmux("send-keys", "-t", "one", command + "; echo ended-$?", "Enter")
        running, deadline = "", time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.3)
            now = tmux("capture-pane", "-e", "-p", "-S", "-", "-t", "one")
            if any(re.match(r"ended-\d", line) for line in plain(now)):
                return running, now
            if re.search(r"\d+(\.\d+)?(it/s|%)|\[ *\d+/|samples/s|images/s|loss", now):
                running = now
        raise TimeoutError(f"no end after {PATIENCE} s: {command}")
    finally:
        tmux("kill-server")


def cells(line):
    """(character, colour, bold) of a line with SGR sequences; others are left out."""
    colour, bold, result = COLOURS[7], False, []
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
        if not part.startswith("\x1b["):
            result += [(character, colour, bold) for character in part]
            continue
        codes = [int(code or 0) for code in part[2:-1].split(";")] if part.endswith("m") and "?" not in part else []
        at = 0
        while at < len(codes):
            code = codes[at]
            if code == 0:
                colour, bold = COLOURS[7], False
            elif code in (1, 22):
                bold = code == 1
            elif code == 2:
                colour = "#999999"
            elif 30 <= code <= 37 or 90 <= code <= 97:
                colour = COLOURS[code % 10]
            elif code == 39:
                colour = COLOURS[7]
            elif code == 38 and codes[at + 1:at + 2] == [5]:
                number = codes[at + 2]
                colour = COLOURS[number % 8] if number < 16 else "#{0:02x}{0:02x}{0:02x}".format(min(255, 60 + number % 195))
                at += 2
            elif code == 38 and codes[at + 1:at + 2] == [2]:
                colour = "#{:02x}{:02x}{:02x}".format(*codes[at + 2:at + 5])
                at += 4
            at += 1
    return result


def draw(text, columns, path):
    lines = text.rstrip("\n").split("\n")
    fonts = [ImageFont.truetype(FONT.format(style), 14) for style in ("", "-Bold")]
    width, height = 8.43, 18
    picture = Image.new("RGB", (int(columns * width) + 16, height * len(lines) + 16), "#1e1e1e")
    pen = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        for column, (character, colour, bold) in enumerate(cells(line)):
            pen.text((8 + column * width, 8 + row * height), character, colour, font=fonts[bold])
    picture.save(path)


def plain(text):
    return ["".join(character for character, _, _ in cells(line)).rstrip() for line in text.rstrip("\n").split("\n")]


FACTS = {
    "network": r"(?i)lenet|Sequential", "parameters": r"(?i)parameters|params", "samples": r"12,?000", "device": r"(?i)\bcpu\b",
    "workers": r"(?i)\d workers?\b|world|\d process|MEMBER: \d", "epoch": r"(?i)epoch", "training loss": r"(?i)loss",
    "test accuracy": r"(?i)acc", "seconds": r"\d s\b|\d+:\d\d", "rate": r"it/s|/s\b", "best": r"(?i)best", "what next": r"(?i)report|predict",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--columns", type=int, nargs="+", default=[80, 160])
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    folder = options.folder.resolve()
    data, runs = folder / "data", folder / "runs"
    data.mkdir(parents=True, exist_ok=True)
    small_data(data)
    print(f"{'program':<14} {'columns':>7} {'lines':>5} {'widest':>6}  not said")
    for columns in options.columns:
        for name, command in commands(options.bin_folder.resolve(), data, runs, options.epochs).items():
            if options.only and name not in options.only:
                continue
            shutil.rmtree(runs, ignore_errors=True)
            for when, text in zip(("running", "end"), watch(command, columns)):
                stem = folder / f"{name}-{columns}-{when}"
                stem.with_suffix(".txt").write_text("\n".join(plain(text)) + "\n")
                draw(text, columns, stem.with_suffix(".png"))
            lines = plain(text)
            missing = [fact for fact, pattern in FACTS.items() if not re.search(pattern, "\n".join(lines[1:]))]
            print(f"{name:<14} {columns:>7} {len(lines):>5} {max(map(len, lines)):>6}  {', '.join(missing)}", flush=True)


if __name__ == "__main__":
    main()
