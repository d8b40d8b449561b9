"""Lets ONNX Runtime compute what dtrain exported, and holds the outputs against dtrain's own.

usage: compare.py FILE.onnx INPUT.npy OUTPUT.npy [FILE.onnx INPUT.npy OUTPUT.npy]…

Prints a line for each model: the largest difference, as it is and relative to the largest output. Exit code 1 above 1e-5.
"""
import sys

import numpy
import onnx
import onnxruntime

LIMIT = 1e-5


def outputs(path, inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    assert len(names) == 1, names
    return session.run(None, {names[0]: inputs})[0]


def compare(path, inputs, expected):
    onnx.checker.check_model(path, full_check=True)
    x, y = numpy.load(inputs), numpy.load(expected)
    got = outputs(path, x)
    if got.shape != y.shape:
        print(f"{path}: expected shape {y.shape}, got {got.shape}")
        return False
    scale = max(float(numpy.abs(y).max()), 1e-30)
    if not scale < 1e4:
        print(f"{path}: expected outputs as a trained network gives them, got up to {scale:.1e}")
        return False
    difference = float(numpy.abs(got.astype(numpy.float64) - y).max())
    error = difference / scale
    # Any number of samples: one alone gives what it gives among the others.
    alone = float(numpy.abs(outputs(path, x[:1]) - y[:1]).max()) / scale
    print(f"{path.split('/')[-1]:24} {len(y):4} samples   {difference:.2e}, {error:.2e} relative   alone {alone:.2e}")
    return max(error, alone) <= LIMIT


def main():
    files = sys.argv[1:]
    assert files and len(files) % 3 == 0, __doc__
    results = [compare(*files[i : i + 3]) for i in range(0, len(files), 3)]
    sys.exit(0 if all(results) else 1)


main()
