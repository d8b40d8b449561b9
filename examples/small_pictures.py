"""Writes small PNG pictures of shapes, a folder for each class: something to try a command on before real pictures are there.

usage: small_pictures.py FOLDER [--classes N] [--train N] [--val N] [--seed N]

FOLDER/train and FOLDER/val get --train and --val pictures of each class, of 48 to 96 pixels a side: a shape of its class's
form and about its class's colour, anywhere, on noise. The same --seed gives the same bytes. Python's own library is enough.
"""
import argparse, pathlib, random, struct, zlib

# Half the width of a row, by its distance from the middle; both in units of the shape's radius.
SHAPES = {
    "circle": lambda y: (1 - y * y) ** 0.5,
    "cross": lambda y: 1 if abs(y) < 0.3 else 0.3,
    "diamond": lambda y: 1 - abs(y),
    "hourglass": abs,
    "square": lambda y: 0.85,
    "triangle": lambda y: (1 + y) / 2,
}
COLOURS = [(230, 80, 60), (70, 190, 80), (70, 100, 230), (230, 200, 60), (190, 80, 200), (80, 200, 210)]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, rows):
    """A PNG file of `rows`, each 3 * width bytes."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def picture(number, rng):
    """Of class `number`, as a PNG file."""
    width, height = rng.randrange(48, 97), rng.randrange(48, 97)
    half_width = list(SHAPES.values())[number]
    radius = rng.uniform(0.25, 0.42) * min(width, height)
    middle = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    colour = bytes(max(0, min(255, value + rng.randrange(-25, 26))) for value in COLOURS[number])
    dark = [rng.randrange(20, 80) for _ in range(3)]
    noise = [bytes(level + value // 4 for value in range(256)) for level in dark]
    rows = []
    for y in range(height):
        row = bytearray(3 * width)
        for channel in range(3):
            row[channel::3] = rng.randbytes(width).translate(noise[channel])
        at = (y + 0.5 - middle[1]) / radius
        if abs(at) < 1:
            half = half_width(at) * radius
            left, right = round(middle[0] - half), round(middle[0] + half)
            row[3 * left : 3 * right] = colour * (right - left)
        rows.append(bytes(row))
    return png(width, height, rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--classes", type=int, default=4, choices=range(2, len(SHAPES) + 1))
    parser.add_argument("--train", type=int, default=60)
    parser.add_argument("--val", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for split in ("train", "val"):
        for number, name in enumerate(list(SHAPES)[: options.classes]):
            folder = options.folder / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(getattr(options, split)):
                (folder / f"{i:04}.png").write_bytes(picture(number, rng))
    print(f"{options.folder}: {options.train + options.val} pictures of each of {options.classes} classes")


main()
