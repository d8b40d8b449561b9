"""Whether a PNG shows something: several colours, none of them almost everywhere. usage: picture.py FILE"""
import struct
import sys
import zlib


def rows(path):
    """(width, bytes a pixel, rows of bytes without filters) of an 8-bit RGB or RGBA picture."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        sys.exit(f"{path}: expected a PNG")
    at, packed, width, height, pixel = 8, b"", 0, 0, 3
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            if depth != 8 or color not in (2, 6):
                sys.exit(f"{path}: expected 8-bit RGB or RGBA, got depth {depth}, colour {color}")
            pixel = 3 if color == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    raw, line = zlib.decompress(packed), width * pixel
    before = bytearray(line)
    for y in range(height):
        begin = y * (line + 1)
        before = unfiltered(raw[begin], bytearray(raw[begin + 1:begin + 1 + line]), before, pixel)
        yield pixel, before


def unfiltered(kind, row, above, pixel):
    """The row as it is, from what the file stores of it."""
    if kind == 2:
        return bytearray((value + up) & 255 for value, up in zip(row, above))
    if kind == 0:
        return row
    for i, value in enumerate(row):
        left, up, corner = (row[i - pixel] if i >= pixel else 0), above[i], (above[i - pixel] if i >= pixel else 0)
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) // 2
        else:
            near = left + up - corner
            guess = min((abs(near - left), 0, left), (abs(near - up), 1, up), (abs(near - corner), 2, corner))[2]
        row[i] = (value + guess) & 255
    return row


def main():
    colours, pixels = {}, 0
    for number, (pixel, row) in enumerate(rows(sys.argv[1])):
        if number % 4:
            continue
        for at in range(0, len(row), 4 * pixel):
            colour = bytes(row[at:at + 3])
            colours[colour] = colours.get(colour, 0) + 1
            pixels += 1
    most = max(colours.values()) / pixels
    if len(colours) < 20 or most > 0.97:
        sys.exit(f"{sys.argv[1]}: {len(colours)} colours, the commonest on {most:.1%} of it: blank")


main()
