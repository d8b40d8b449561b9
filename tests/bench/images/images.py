"""Pictures a second of one core, in CPU time: dtrain beside torchvision's v2 transforms on tensors and v1 on PIL pictures,
in turns, in one run; medians, spread and ratios.

usage: images.py BENCH_IMAGES FOLDER [--most N] [--rounds N] [--photographs]    (with pillow and torchvision)

With --photographs, pieces of FOLDER's large JPEGs are measured that are like ImageNet's pictures: 500 x 375 pixels, halved
from 1,000 x 750, of about 45 kB. Parts are what libjpeg-turbo alone takes for the pixels that training's crops ask for.
"""
import argparse, io, pathlib, statistics, subprocess, tempfile, time

import torch
from PIL import Image
from torchvision import io as tv_io
from torchvision import transforms as v1
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def peers(files):
    encoded = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]
    norm2 = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    norm1 = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
    train2 = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()] + norm2)
    train1 = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()] + norm1)
    test2 = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224)] + norm2)
    test1 = v1.Compose([v1.Resize(256), v1.CenterCrop(224)] + norm1)

    def decode2(e):
        return tv_io.decode_image(e, tv_io.ImageReadMode.RGB)

    def decode1(f):
        return Image.open(io.BytesIO(f)).convert("RGB")

    def timed(step, inputs):
        begin = time.thread_time()
        for one in inputs:
            step(one)
        return len(inputs) / (time.thread_time() - begin)

    return {
        ("decode", "torchvision"): lambda: timed(decode2, encoded),
        ("decode", "pillow"): lambda: timed(decode1, files),
        ("train", "torchvision v2"): lambda: timed(lambda e: train2(decode2(e)), encoded),
        ("train", "torchvision v1, PIL"): lambda: timed(lambda f: train1(decode1(f)), files),
        ("evaluate", "torchvision v2"): lambda: timed(lambda e: test2(decode2(e)), encoded),
        ("evaluate", "torchvision v1, PIL"): lambda: timed(lambda f: test1(decode1(f)), files),
    }


def write_photographs(paths, most, folder):
    """Pieces of the large pictures among paths, of as many as there are, as files of folder."""
    width, height, written = 500, 375, []
    for path in paths:
        picture = Image.open(path).convert("RGB")
        places = [(x, y) for y in range(0, picture.height - 2 * height + 1, 2 * height)
                  for x in range(0, picture.width - 2 * width + 1, 2 * width)]
        for x, y in places[len(places) // 2:][:4]:
            piece = picture.crop((x, y, x + 2 * width, y + 2 * height)).resize((width, height), Image.Resampling.LANCZOS)
            smallest = None
            for quality in (98, 95, 92, 88, 84, 80, 75):
                encoded = io.BytesIO()
                piece.save(encoded, "JPEG", quality=quality)
                smallest = encoded.getvalue()
                if len(smallest) <= 48_000:
                    break
            if 38_000 <= len(smallest) <= 48_000:
                written.append(folder / f"{len(written):04}.jpg")
                written[-1].write_bytes(smallest)
        if len(written) >= most:
            break
    return written[:most]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--most", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--photographs", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(p for p in pathlib.Path(options.folder).rglob("*.jpg") if p.read_bytes()[:2] == b"\xff\xd8")
    with tempfile.TemporaryDirectory() as scratch:
        if options.photographs:
            paths = write_photographs(paths, options.most, pathlib.Path(scratch))
        paths = paths[:: max(1, len(paths) // options.most)][: options.most]
        compare(options, paths)


def compare(options, paths):
    files = [p.read_bytes() for p in paths]
    sizes = [Image.open(p).size for p in paths]
    print(f"{len(files)} JPEGs, {statistics.median(w * h for w, h in sizes) / 1e3:.0f} kpixel and "
          f"{statistics.median(map(len, files)) / 1e3:.0f} kB in the median; {options.rounds} rounds in turns")
    ours = subprocess.Popen([options.program, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(work):
        ours.stdin.write(f"{work} 1\n")
        ours.stdin.flush()
        return float(ours.stdout.readline())

    runs = dict(peers(files))
    for work in ("decode", "part", "train", "evaluate"):
        runs[work, "dtrain"] = lambda work=work: ask(work)
    rates = {key: [] for key in runs}
    for round_number in range(options.rounds + 1):
        for key, run in runs.items():
            rate = run()
            if round_number > 0:  # the first warms up
                rates[key].append(rate)
    for work in ("decode", "part", "train", "evaluate"):
        own = rates[work, "dtrain"]
        for (what, who), values in rates.items():
            if what == work:
                ratios = sorted(a / b for a, b in zip(own, values))
                print(f"{work:9} {who:20} {statistics.median(values):7.0f} img/s ({min(values):.0f} to {max(values):.0f})"
                      + ("" if who == "dtrain" else f"   dtrain is {statistics.median(ratios):.2f} times as fast "
                         f"({ratios[0]:.2f} to {ratios[-1]:.2f})"))


if __name__ == "__main__":
    main()
