"""Pictures by dtrain_decode_pictures, byte for byte against Pillow, and its transforms bit for bit against torchvision.

usage: pictures.py DECODE_PICTURES [--folder DIR]... [--seeds N] [--most N]

Without --folder on pictures that it makes: every mode Pillow writes as JPEG, PNG and WebP, and damaged ones. With
--seeds 0 the pixels and their resizing alone, for thousands of pictures.
"""
import argparse, pathlib, random, subprocess, sys, tempfile

import numpy as np
import torch
from made_pictures import make_pictures, picture, png
from shards import check_lists
from PIL import Image
from recipes import AMOUNTS, changed, recipes

Image.MAX_IMAGE_PIXELS = None
ENDINGS = (".jpg", ".jpeg", ".png", ".webp")


class Ours:
    """The program, which answers one command at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        self.process.stdin.write(("\t".join(str(w) for w in words) + "\n").encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode()
        if line.startswith("error "):
            return line.strip()
        if not line:
            sys.exit(f"pictures.py: the program ended at: {words}")
        width, height, count = map(int, line.split())
        return np.frombuffer(self.process.stdout.read(count), np.uint8), width, height

    def pixels(self, *words):
        answer = self.ask(*words)
        if isinstance(answer, str):
            return answer
        return answer[0].reshape(answer[2], answer[1], 3)

    def lines(self, *words):
        answer = self.ask(*words)
        if isinstance(answer, str):
            return answer
        return [tuple(line.split("\t")) for line in answer[0].tobytes().decode().splitlines()]

    def numbers(self, *words):
        answer = self.ask(*words)
        return answer if isinstance(answer, str) else answer[0].view(np.float32).reshape(3, answer[2], answer[1])


class Check:
    def __init__(self):
        self.counts, self.failures = {}, []

    def equal(self, what, path, ours, theirs):
        same = not isinstance(ours, str) and ours.shape == theirs.shape and np.array_equal(ours, theirs)
        right, all_of_them = self.counts.get(what, (0, 0))
        self.counts[what] = (right + same, all_of_them + 1)
        if same:
            return
        if isinstance(ours, str):
            detail = ours
        elif ours.shape != theirs.shape:
            detail = f"shape {ours.shape}, expected {theirs.shape}"
        else:
            wrong = ours != theirs
            detail = f"{wrong.mean():.2%} differ, by {np.abs(ours.astype(float) - theirs.astype(float)).max():.4g} at most"
        self.failures.append(f"{what}: {path}: {detail}")

    def same(self, what, place, ours, theirs):
        right, all_of_them = self.counts.get(what, (0, 0))
        self.counts[what] = (right + (ours == theirs), all_of_them + 1)
        if ours != theirs:
            first = ours if isinstance(ours, str) else next((p for p in zip(ours, theirs) if p[0] != p[1]), "lengths")
            self.failures.append(f"{what}: {place}: {str(first)[:200]}")

    def refused(self, path, ours):
        ok = isinstance(ours, str)
        right, all_of_them = self.counts.get("refused", (0, 0))
        self.counts["refused"] = (right + ok, all_of_them + 1)
        if not ok:
            self.failures.append(f"refused: {path}: it was decoded")


def check_file(ours, check, path, seeds):
    with Image.open(path) as opened:
        theirs = opened.convert("RGB")
    pixels = np.asarray(theirs)
    rng = random.Random(str(path.name))
    check.equal("whole", path, ours.pixels("whole", path), pixels)
    for _ in range(seeds):
        width, height = rng.randint(1, theirs.width), rng.randint(1, theirs.height)
        left, top = rng.randint(0, theirs.width - width), rng.randint(0, theirs.height - height)
        check.equal("part", f"{path} {left} {top} {width} {height}", ours.pixels("part", path, left, top, width, height),
                    pixels[top : top + height, left : left + width])
    for name, method in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
        size = (rng.randint(1, 300), rng.randint(1, 300))
        check.equal(f"resize, {name}", f"{path} to {size}", ours.pixels("resize", path, *size, name),
                    np.asarray(theirs.resize(size, method)))
    if seeds == 0:
        return
    for size, short in ((224, 256), (32, 37)):
        if max(theirs.size) > 40 * min(theirs.size):
            continue
        for text, recipe in recipes(size, short).items():
            for seed in range(1 if text == "none" else seeds):
                torch.manual_seed(seed)
                check.equal(f"transform {text}", f"{path} seed {seed}",
                            ours.numbers("transform", path, size, short, text, seed), recipe(theirs).numpy())
    for kind, amounts in AMOUNTS.items():
        amount = rng.choice(amounts)
        check.equal(f"change {kind}", f"{path} {amount}", ours.pixels("change", path, kind, amount),
                    np.asarray(changed(theirs, kind, amount)))


def check_damaged(ours, check, folder, damaged):
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        if len(content) < 200:
            continue
        for name, cut in (("half", len(content) // 2), ("header", 20), ("two", 2)):
            target = damaged / f"{name}-{path.name}"
            target.write_bytes(content[:cut])
            check.refused(target, ours.pixels("part", target, 0, 0, 1, 1))
        if path.suffix == ".jpg" and content[-2:] == b"\xff\xd9":
            target = damaged / f"end-{path.name}"
            target.write_bytes(content[:-2])
            check.refused(target, ours.pixels("part", target, 0, 0, 1, 1))
    for name, content in (("empty", b""), ("text", b"no picture at all"), ("gif", b"GIF89a" + bytes(30)), ("bomb", png(60000, 60000, 8, 2, 0, b""))):
        (damaged / name).write_bytes(content)
        check.refused(damaged / name, ours.pixels("whole", damaged / name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=10**9, help="pictures of each folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ours, check = Ours(options.program), Check()
    with tempfile.TemporaryDirectory() as scratch:
        made, damaged = pathlib.Path(scratch, "made"), pathlib.Path(scratch, "damaged")
        made.mkdir(), damaged.mkdir()
        if not options.folder:
            make_pictures(made, [(1, 1), (7, 5), (16, 16), (97, 61), (33, 129), (200, 150)])
            check_damaged(ours, check, made, damaged)
            check_lists(ours, check, made, pathlib.Path(scratch))
        for folder in options.folder or [made]:
            files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
            for path in files[:: max(1, len(files) // options.most)]:
                check_file(ours, check, path, options.seeds)
    for what, (right, all_of_them) in check.counts.items():
        print(f"{what}: {right} of {all_of_them}")
    for failure in check.failures[:20]:
        print(failure)
    sys.exit(1 if check.failures else 0)


main()
