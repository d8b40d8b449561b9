"""Writes masks/ (PNGs whose pixels are classes) and masks.json: their numbers, and what torchvision's transforms of PIL
pictures make of them with the nearest pixel, as CRC-32; and orientations.json: made/exif.jpg turned by each orientation.

usage: make_masks.py    (with pillow and torchvision)
"""
import io, json, pathlib, shutil, zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision import transforms
from torchvision.transforms import InterpolationMode

NEAREST = InterpolationMode.NEAREST
SIZE, SHORT = 32, 37
TRAINED = transforms.Compose([transforms.RandomResizedCrop(SIZE, interpolation=NEAREST), transforms.RandomHorizontalFlip()])
EVALUATED = transforms.Compose([transforms.Resize(SHORT, interpolation=NEAREST), transforms.CenterCrop(SIZE)])
here = pathlib.Path(__file__).parent


def numbers(width, height, values):
    rows, columns = np.mgrid[:height, :width]
    return (rows * rows // 5 + columns * 3 // 7 + rows * columns // 11) % values


def made():
    """By the file's name."""
    palette = np.random.RandomState(0).randint(0, 256, 768).tolist()
    for width, height in ((61, 45), (40, 97), (150, 8), (32, 32), (320, 240)):
        image = Image.fromarray(numbers(width, height, 256).astype(np.uint8), "L")
        yield f"{width}-L.png", image, {}
        image = Image.fromarray(numbers(width, height, 21).astype(np.uint8), "P")
        image.putpalette(palette)
        yield f"{width}-P.png", image, {}
    for bits in (1, 2, 4):
        image = Image.fromarray(numbers(61, 45, 1 << bits).astype(np.uint8), "P")
        image.putpalette(palette[: 3 << bits])
        yield f"palette-{bits}.png", image, {"bits": bits}
    yield "one-bit.png", Image.fromarray(numbers(61, 45, 2).astype(bool)), {}
    yield "deep.png", Image.fromarray(numbers(61, 45, 40000).astype(np.uint16)), {}


def crc(array, dtype):
    return zlib.crc32(np.ascontiguousarray(np.asarray(array).astype(dtype)).tobytes())


def record(path):
    with Image.open(path) as opened:
        opened.load()
        mask = opened.copy()
    trained = []
    for seed in range(8):
        torch.manual_seed(seed)
        trained.append(crc(TRAINED(mask), "<i8"))
    return {"file": path.name, "width": mask.width, "height": mask.height, "crc32": crc(mask, "<u2"),
            "evaluated": crc(EVALUATED(mask), "<i8"), "trained": trained}


def orientations():
    """Of made/exif.jpg, whose EXIF block has only the orientation."""
    stored = (here / "made" / "exif.jpg").read_bytes()
    at = stored.index(b"\x01\x12\x00\x03\x00\x00\x00\x01\x00") + 9
    for orientation in range(1, 9):
        with Image.open(io.BytesIO(stored[:at] + bytes([orientation]) + stored[at + 1 :])) as opened:
            upright = ImageOps.exif_transpose(opened).convert("RGB")
        yield {"width": upright.width, "height": upright.height, "crc32": zlib.crc32(np.asarray(upright).tobytes())}


def main():
    (here / "orientations.json").write_text("[\n" + ",\n".join(json.dumps(entry) for entry in orientations()) + "\n]\n")
    folder = here / "masks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, image, how in made():
        image.save(folder / name, **how)
    lines = [json.dumps(record(path)) for path in sorted(folder.iterdir())]
    (here / "masks.json").write_text('{"masks": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
