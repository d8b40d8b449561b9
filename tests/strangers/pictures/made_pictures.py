"""Small pictures of every kind that Pillow writes or reads as JPEG, PNG and WebP."""
import io, struct, zlib

import numpy as np
from PIL import Image


def picture(width, height, seed=0):
    """Smooth, with edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    rows = [127 + 120 * np.sin(x / (5 + c) + y / (9 - c)) for c in range(3)]
    pixels = np.stack(rows, -1) + rng.normal(0, 12, (height, width, 3))
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def save(folder, name, image, **options):
    image.save(folder / name, **options)


def make_pictures(folder, sizes):
    for i, (width, height) in enumerate(sizes):
        image = picture(width, height, i)
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                save(folder, f"{i}-{sampling.replace(':', '')}-{progressive}.jpg", image, quality=60 + 7 * (i % 6),
                     subsampling=sampling, progressive=progressive)
        save(folder, f"{i}-gray.jpg", image.convert("L"))
        save(folder, f"{i}-cmyk.jpg", image.convert("CMYK"))
        save(folder, f"{i}-restart.jpg", image, restart_marker_blocks=2)
        save(folder, f"{i}-keep-rgb.jpg", image, keep_rgb=True)
        for mode in ("RGB", "L", "1", "RGBA", "LA", "P"):
            save(folder, f"{i}-{mode}.png", image.convert(mode))
        alpha = image.convert("RGBA")
        alpha.putalpha(Image.fromarray(np.asarray(image)[:, :, 0]))
        save(folder, f"{i}-alpha.png", alpha)
        few = image.quantize(11)
        save(folder, f"{i}-P4.png", few, bits=4)
        save(folder, f"{i}-P-transparent.png", few, transparency=3)
        save(folder, f"{i}-RGB-transparent.png", image, transparency=image.getpixel((0, 0)))
        deep = np.asarray(image.convert("L")).astype(np.uint16) * 3
        save(folder, f"{i}-gray16.png", Image.fromarray(deep))
        (folder / f"{i}-rgb16.png").write_bytes(png16(np.asarray(image).astype(np.uint16) * 257 + 99, 2))
        gray_alpha = np.stack([deep * 85, deep], -1)
        (folder / f"{i}-la16.png").write_bytes(png16(gray_alpha, 4))
        for bits in (1, 2, 4):
            (folder / f"{i}-gray{bits}.png").write_bytes(png_gray(np.asarray(image)[:, :, 1] >> (8 - bits), bits))
        (folder / f"{i}-interlaced.png").write_bytes(png_interlaced(np.asarray(image)))
        save(folder, f"{i}-lossy.webp", image, quality=80)
        save(folder, f"{i}-lossless.webp", image, lossless=True)
        save(folder, f"{i}-alpha.webp", alpha, quality=70)
        others = [picture(width, height, 100 + i + frame) for frame in range(2)]
        save(folder, f"{i}-animation.webp", image, save_all=True, append_images=others, quality=75)
        save(folder, f"{i}-alpha-animation.webp", alpha, save_all=True, append_images=others, lossless=True)
        for lossless in (False, True):
            content = animation_in_place(alpha, (2 * i, 6), (width + 3 * i + 1, height + 9), lossless)
            (folder / f"{i}-in-place-{lossless}.webp").write_bytes(content)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    save(folder, "exif.jpg", picture(60, 40), exif=exif)
    save(folder, "mistyped.jpg", picture(40, 30), format="PNG")
    small = io.BytesIO()
    picture(16, 16).save(small, "JPEG")
    exif[0x010E] = "a picture in the header"
    save(folder, "thumbnail.jpg", picture(90, 70), exif=exif.tobytes() + small.getvalue())


def webp_chunk(kind, content):
    return kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def animation_in_place(image, corner, canvas, lossless):
    """WebP with one frame, smaller than the canvas, at `corner`, whose sides are even."""
    small = io.BytesIO()
    image.save(small, "WEBP", lossless=lossless, exact=True)
    at, chunks = 12, b""
    while at < len(small.getvalue()):
        size = 8 + struct.unpack_from("<I", small.getvalue(), at + 4)[0]
        size += size % 2
        if small.getvalue()[at : at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
            chunks += small.getvalue()[at : at + size]
        at += size
    three = lambda number: struct.pack("<I", number)[:3]
    place = b"".join(map(three, (corner[0] // 2, corner[1] // 2, image.width - 1, image.height - 1, 100)))
    content = (webp_chunk(b"VP8X", b"\x12\0\0\0" + three(canvas[0] - 1) + three(canvas[1] - 1))
               + webp_chunk(b"ANIM", b"\x10\x20\x30\xff\0\0") + webp_chunk(b"ANMF", place + b"\0" + chunks))
    return webp_chunk(b"RIFF", b"WEBP" + content)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, depth, colour, interlace, rows):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def png16(pixels, colour):
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return png(pixels.shape[1], pixels.shape[0], 16, colour, 0, rows)


def png_gray(values, bits):
    each = 8 // bits
    rows = b""
    for row in values:
        padded = np.concatenate([row, np.zeros(-len(row) % each, np.uint8)]).reshape(-1, each).astype(np.uint8)
        packed = np.zeros(len(padded), np.uint8)
        for i in range(each):
            packed |= padded[:, i] << (8 - bits * (i + 1))
        rows += b"\0" + packed.tobytes()
    return png(values.shape[1], values.shape[0], bits, 0, 0, rows)


def png_interlaced(pixels):
    rows = b""
    for y, x, down, right in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
        part = pixels[y::down, x::right]
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    return png(pixels.shape[1], pixels.shape[0], 8, 2, 1, rows)
