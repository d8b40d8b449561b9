#!/usr/bin/env python3
"""What `dtrain tokenize` needs for a large text: peak memory and time, whole, and killed (SIGKILL) and run again until it is done,
which must give the same shards, byte for byte.

The text is made of FOLDER's *.txt, over and over, each time with other words changed so that no two copies are alike: half in one
file, which is one document, half as lines of .jsonl. It needs 2.5 bytes a byte of text in --scratch, which it removes.

usage: large.py DTRAIN TOKENIZER FOLDER [--bytes N] [--threads N] [--kills N] [--scratch FOLDER]
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time


def varied(text, number):
    """`text` with one word in fifty made another one."""
    draw = random.Random(number)
    words = text.split(" ")
    for at in range(draw.randrange(50), len(words), 50):
        words[at] += f"{draw.randrange(1000)}"
    return " ".join(words)


def write_text(folder, texts, size):
    half, number = size // 2, 0
    with open(folder / "one.txt", "w") as one, open(folder / "many.jsonl", "w") as many:
        while one.tell() + many.tell() < size:
            text = varied(texts[number % len(texts)], number)
            number += 1
            if one.tell() < half:
                one.write(text)
                continue
            for at in range(0, len(text), 5000):
                many.write(json.dumps({"text": text[at:at + 5000]}) + "\n")
    return sum((folder / name).stat().st_size for name in ("one.txt", "many.jsonl"))


def run(command, seconds=None):
    """(whether it came to its end, seconds, the most bytes that were resident); killed after `seconds`."""
    begin = time.monotonic()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    killed = os.WIFSIGNALED(status)
    if not killed and os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
    return not killed, time.monotonic() - begin, usage.ru_maxrss * 1024


def hash_of(folder):
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.tokens")):
        total.update(path.name.encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    return total.hexdigest(), len(list(folder.glob("*.tokens")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("tokenizer")
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--scratch")
    options = parser.parse_args()
    texts = [path.read_text(errors="replace") for path in sorted(pathlib.Path(options.folder).rglob("*.txt"))]
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = pathlib.Path(scratch)
        size = write_text(folder, [text for text in texts if text.strip()], options.bytes)
        print(f"{size / 1e6:.0f} MB of text, {options.threads} threads", flush=True)

        def command(output):
            return [options.dtrain, "tokenize", "--tokenizer", options.tokenizer, "--input", str(folder / "[om]*"), "--output",
                    str(folder / output), "--threads", options.threads, "--shard-tokens", "10000000"]

        _, whole, most = run(command("whole"))
        print(f"whole: {whole:.1f} s, {size / whole / 1e6:.1f} MB/s, at most {most / 2**20:.1f} MiB resident", flush=True)
        expected = hash_of(folder / "whole")
        kills, done = 0, False
        while not done:
            draw = random.Random(kills)
            done, _, most = run(command("killed"), whole * draw.uniform(0.2, 0.5) if kills < options.kills else None)
            kills += not done
        found = hash_of(folder / "killed")
        print(f"killed {kills} times: {found[1]} shards, {'the same bytes' if found == expected else 'OTHER BYTES'}; the last run at "
              f"most {most / 2**20:.1f} MiB")
        sys.exit(0 if found == expected else 1)


if __name__ == "__main__":
    main()
