"""`dtrain data pack`, `index` and `stats` against Pillow, webdataset and numpy: packed pictures have the same pixels, labels
and order in every reader; statistics are those of the pixels.

usage: pack.py DTRAIN    (with pillow, numpy and webdataset)
"""
import io, json, pathlib, re, subprocess, sys, tempfile, zlib

import numpy
import webdataset
from PIL import Image

CLASSES = ["B", "a b", "caf\u00e9"]


def make_folder(root):
    """(path, class) in ImageFolder's order."""
    rng = numpy.random.default_rng(3)
    ways = [("RGB", "jpg", {"quality": 90, "progressive": True}), ("RGB", "jpg", {"quality": 75, "comment": b"kept"}),
            ("L", "jpg", {"quality": 80}), ("CMYK", "jpg", {"quality": 85}), ("RGBA", "png", {}), ("P", "png", {}),
            ("RGB", "webp", {"quality": 80})]
    for i in range(40):
        mode, ending, settings = ways[i % len(ways)]
        small = rng.integers(0, 256, (int(rng.integers(3, 9)), int(rng.integers(3, 9)), 4), dtype=numpy.uint8)
        size = int(rng.integers(40, 200)), int(rng.integers(40, 200))
        picture = Image.fromarray(small, "RGBA").resize(size, Image.BICUBIC)
        picture = picture.convert("RGB").convert(mode) if mode in ("CMYK", "P", "L", "RGB") else picture
        folder = root / CLASSES[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[274] = 6
        picture.save(folder / f"{i:02}.{ending}", **settings, **({"exif": exif} if i % 5 == 0 and ending == "jpg" else {}))
    return [(path, label) for label, name in enumerate(sorted(CLASSES)) for path in sorted((root / name).iterdir())]


def run(dtrain, *arguments, code=0):
    done = subprocess.run([dtrain, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def pixels(content):
    return numpy.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def check_packed(dtrain, samples, folder):
    said = run(dtrain, "data", "pack", "--dataset", f"folder:{folder / 'in'}", "--output", folder / "packed/s", "--shard-mib", 1)
    assert "40 pictures in 1 shard" in said, said
    shard = folder / "packed/s-000000.tar"
    theirs = list(webdataset.WebDataset(str(shard), shardshuffle=False))
    assert len(theirs) == len(samples)
    for (path, label), sample in zip(samples, theirs):
        ending = next(e for e in ("jpg", "png", "webp") if e in sample)
        about = json.loads(sample["json"])
        assert int(sample["cls"]) == label and about["class"] == path.parent.name and about["source"] == str(path)
        assert int(about["crc32"], 16) == zlib.crc32(sample[ending])
        assert numpy.array_equal(pixels(path.read_bytes()), pixels(sample[ending])), path
        opened, before = Image.open(io.BytesIO(sample[ending])), Image.open(path)
        assert opened.format == before.format and opened.getexif() == before.getexif()
        if ending == "jpg":
            assert not opened.info.get("progressive") and b"\xff\xdd" in sample[ending], path
            assert opened.info.get("comment") == before.info.get("comment")
    return shard


def check_index(dtrain, shard, folder):
    run(dtrain, "data", "index", "--shards", shard)
    lines = shard.with_suffix(".idx").read_text().splitlines()
    content = shard.read_bytes()
    assert lines[0] == f"v1.2 {len(lines) - 1}" and len(lines) == 41
    for line, sample in zip(lines[1:], webdataset.WebDataset(str(shard), shardshuffle=False)):
        words = line.split(" ")
        for ending, offset, size, name in zip(*[iter(words)] * 4):
            assert name == f"{sample['__key__']}.{ending}"
            assert content[int(offset):int(offset) + int(size)] == sample[ending]
    said = run(dtrain, "data", "check", "--dataset", f"shards:{shard},index={shard.with_suffix('.idx')}")
    assert "40 samples, 0 of them bad" in said, said


def check_stats(dtrain, samples, folder):
    (folder / "in/B/zz.png").write_bytes(samples[0][0].read_bytes())
    said = run(dtrain, "data", "stats", "--dataset", f"folder:{folder / 'in'}")
    all_pixels = numpy.concatenate([pixels(path.read_bytes()).reshape(-1, 3) for path, _ in samples + [(folder / "in/B/zz.png", 0)]]) / 255
    for word, numbers in (("mean", all_pixels.mean(0)), ("deviation", all_pixels.std(0))):
        found = [float(n) for n in re.search(word + r" +([0-9.]+) ([0-9.]+) ([0-9.]+)", said).groups()]
        assert numpy.abs(found - numbers).max() < 1e-4, (word, found, numbers)
    assert "pictures    41 in 3 classes" in said and "duplicates  1" in said and f"{samples[0][0]} = " in said, said
    assert "mistyped    1" in said and "zz.png is" in said, said


def check_bad(dtrain, samples, shard, folder):
    content = bytearray(shard.read_bytes())
    content[content.index(b"\xff\xda") + 40] ^= 1
    bad_shard = folder / "bad.tar"
    bad_shard.write_bytes(content)
    assert "checksum" in run(dtrain, "data", "check", "--dataset", f"shards:{bad_shard}", code=5)
    path = samples[7][0]
    path.write_bytes(path.read_bytes()[:-100])
    said = run(dtrain, "data", "pack", "--dataset", f"folder:{folder / 'in'}", "--output", folder / "none/s", code=5)
    assert str(path) in said and "nothing was written" in said and not (folder / "none").exists(), said
    assert str(path) in run(dtrain, "data", "stats", "--dataset", f"folder:{folder / 'in'}", code=5)


def main(dtrain):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        samples = make_folder(folder / "in")
        shard = check_packed(dtrain, samples, folder)
        check_index(dtrain, shard, folder)
        check_stats(dtrain, samples, folder)
        check_bad(dtrain, samples, shard, folder)
    print("packed, indexed and counted as Pillow, webdataset and numpy do")


if __name__ == "__main__":
    main(sys.argv[1])
