"""Writes and reads what tests/support/golden.h reads: a tree of dictionaries and lists in a safetensors file, whose long lists
of numbers, and tables of them, are its tensors. Needs nothing but Python.

    golden.save(folder / "golden.safetensors", {"torch": "2.15", "losses": [2.3, 2.1, …]})
"""
import array
import json
import math
import pathlib
import struct

LEAST = 16  # shorter lists of numbers stay in the text


def shape_of(value):
    """Of a long list of numbers, or of lists of as many numbers each; None for anything else."""
    if not isinstance(value, list) or not value:
        return None
    if all(type(v) in (int, float) for v in value):
        return [len(value)]
    shapes = [shape_of(v) for v in value]
    return [len(value), *shapes[0]] if shapes[0] and len(shapes[0]) == 1 and all(s == shapes[0] for s in shapes) else None


def is_long(value):
    return math.prod(shape_of(value) or [0]) >= LEAST


def flat(value):
    return [v for row in value for v in row] if isinstance(value[0], list) else value


def without_tensors(value, name, tensors):
    """The tree with null for each list that goes to `tensors`, by its path."""
    if is_long(value):
        values = flat(value)
        tensors[name] = shape_of(value), array.array("d" if any(type(v) is float for v in values) else "q", values)
        return None
    if isinstance(value, dict):
        return {key: without_tensors(v, f"{name}/{key}" if name else key, tensors) for key, v in value.items()}
    if isinstance(value, list):
        return [without_tensors(v, f"{name}/{i}" if name else str(i), tensors) for i, v in enumerate(value)]
    return value


def with_tensors(value, name, tensors):
    if name in tensors:
        shape, values = tensors[name]
        return [values[i:i + shape[1]].tolist() for i in range(0, len(values), shape[1])] if len(shape) == 2 else values.tolist()
    if isinstance(value, dict):
        return {key: with_tensors(v, f"{name}/{key}" if name else key, tensors) for key, v in value.items()}
    if isinstance(value, list):
        return [with_tensors(v, f"{name}/{i}" if name else str(i), tensors) for i, v in enumerate(value)]
    return value


def save(path, tree):
    tensors, header, end = {}, {}, 0
    text = json.dumps(without_tensors(tree, "", tensors), allow_nan=False, separators=(",", ":"))
    for name, (shape, values) in tensors.items():
        begin, end = end, end + len(values) * values.itemsize
        header[name] = {"dtype": "F64" if values.typecode == "d" else "I64", "shape": shape,
                        "data_offsets": [begin, end]}
    encoded = json.dumps({"__metadata__": {"tree": text}, **header}, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(encoded)) + encoded + b"".join(v.tobytes() for _, v in tensors.values()))


def load(path):
    content = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header, tensors = json.loads(content[8:begin]), {}
    tree = json.loads(header.pop("__metadata__")["tree"])
    for name, entry in header.items():
        values = array.array("d" if entry["dtype"] == "F64" else "q")
        values.frombytes(content[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
        tensors[name] = entry["shape"], values
    return with_tensors(tree, "", tensors)
