# Writes arrays with numpy.save and a table with the csv module, each beside the bytes that dtrain must make of it.
#
# usage: python make_own_files.py FOLDER
import csv
import math
import sys

import numpy

folder = sys.argv[1]
random = numpy.random.default_rng(0)

for name, dtype, expected in [
    ("f4", "<f4", "<f4"),
    ("f8", "<f8", "<f4"),
    ("i4", "<i4", "<i4"),
    ("i8", "<i8", "<i8"),
    ("u1", "|u1", "|u1"),
    ("b1", "|b1", "|u1"),
]:
    values = random.standard_normal((7, 3, 5)) * 50
    array = (values > 0) if name == "b1" else numpy.abs(values).astype(dtype) if name == "u1" else values.astype(dtype)
    for version in [1, 2, 3]:
        with open(f"{folder}/{name}.{version}.npy", "wb") as file:
            numpy.lib.format.write_array(file, array, version=(version, 0))
    array.astype(expected).tofile(f"{folder}/{name}.raw")

# Numbers of every size as text, short and long; names and cells that need quotes.
numbers = []
while len(numbers) < 3000:
    value = math.ldexp(random.uniform(-1, 1), int(random.integers(-160, 127)))
    numbers.append(random.choice([repr(value), f"{value:.3e}", f"{value:.30g}", str(int(random.integers(-9999, 9999)))]))
with open(f"{folder}/table.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["note", "a, b", 'the "c"', "two\nlines"])
    for row in range(1000):
        writer.writerow([f'row "{row}",\r\nquoted', *numbers[row * 3 : row * 3 + 3]])
numpy.array([float(text) for text in numbers], dtype="<f8").astype("<f4").tofile(f"{folder}/table.raw")
