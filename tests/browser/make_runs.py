"""Folders of runs as `dtrain train` leaves them, of which only the report is tested. usage: make_runs.py FOLDER, or
make_runs.py --grow RUN: adds a line to it every 10 ms, for a minute"""
import json
import math
import os
import sys
import time

PARTS = {"data": 0.3, "forward": 8.1, "backward": 18.5, "communication": 2.9, "optimizer": 0.1, "checkpoint": 0.01, "other": 0.08}


def step(number, lr, began, loss=None, scale=1.0):
    noise = math.sin(number * 12.9898) * 0.11
    value = 0.35 + 1.95 * math.exp(-number * lr / 6) + noise if loss is None else loss
    return {"event": "step", "step": number, "epoch": (number - 1) // 100, "loss": value, "lr": lr * min(1, number / 40) * (1 if number < 250 else 0.3),
            "samples_per_second": (8500 + 600 * math.sin(number / 9)) / scale, "allocated_bytes": 1032792 + 40000 * (number > 3), "peak_allocated_bytes": 5848160,
            "resident_bytes": 54000000 + int(16582272 * scale) + min(number, 150) * 100000, "peak_resident_bytes": 86630400, "time": began + number * 0.03 * scale}


def write_lines(run, lines):
    with open(os.path.join(run, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def write_json(run, name, value):
    with open(os.path.join(run, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def config(lr, **more):
    options = {"model": ("lenet", "command line"), "dataset": ("fashion-mnist", "command line"), "lr": (str(lr), "command line"),
               "momentum": ("0.9", "DTRAIN_MOMENTUM"), "optimizer": ("sgd", "default"), "precision": ("fp32", "default"), **more}
    return {"options": {name: {"value": value, "source": source} for name, (value, source) in options.items()},
            "device": "cpu (oneDNN 2.6.3, avx512_core)", "emulated": False, "global_batch_size": 256, "batch_size_per_worker": 128, "accumulate": 1, "lr": lr,
            "machine": {"host": "node-17", "system": "Linux 6.1.0", "processor": "A processor of 2 cores", "cores": 2, "memory_bytes": 8 << 30}}


def trained(run, lr, scale):
    """A run of four epochs that was resumed once."""
    os.makedirs(os.path.join(run, "logs"))
    write_json(run, "config.json", config(lr))
    for number in range(1, 401):
        write_lines(run, [step(number, lr, 1.7e9, scale=scale)])
        if number % 50 == 0:
            write_lines(run, [{"event": "phases", "step": number, "steps": 50,
                               "milliseconds": {name: [ms * scale, ms * scale * 1.1] for name, ms in PARTS.items()}}])
        if number % 100 == 0:
            epoch = number // 100 - 1
            write_lines(run, [{"event": "epoch", "epoch": epoch, "step": number, "seconds": scale * (3 + 0.1 * epoch), "whole": epoch != 2},
                              {"event": "eval", "epoch": epoch, "loss": 0.9 / (epoch + 1) + 0.2, "accuracy": 0.9 - 0.2 / (epoch + 1) * lr * 10, "samples": 10000}])
    write_json(run, "summary.json", {"status": "finished", "steps": 400, "epochs": 4, "world_size": 2, "loss": 0.4731, "samples_per_second": 8515.91 / scale,
                                     "seconds": 14.95 * scale, "seconds_to_first_step": 0.1678, "resumed_from_step": 200, "peak_resident_bytes": 86630400,
                                     "peak_allocated_bytes": 5848160, "test": {"accuracy": 0.9 - 0.5 * lr, "loss": 0.425, "samples": 10000}})
    with open(os.path.join(run, "logs/rank-0.log"), "w", encoding="utf-8") as file:
        file.write("dtrain: rank 0: rank 0 of 2, pid 11, cpu (oneDNN), backend tcp\ndtrain: rank 0: error: all_reduce 1201: rank 1 on node-17 is gone\n"
                   "dtrain: rank 0: rank 0 of 2, pid 12, cpu (oneDNN), backend tcp\n")


# 256 x 32 pixels, eight colours from black to white, as a JPEG.
SHEET = ("/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8yb"
         "qmx5moq6T/wAALCAAgAQABAREA/8QAFwABAQEBAAAAAAAAAAAAAAAAAAQHBv/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8A5kBWAqAV"
         "gKwFQCsBWAzQBWAqAVgKwFQCsBWAzQBWAqAVgKwFQCsBWAzQBWAqAVgKwFQCsBWA/9k=")


def samples(run):
    """Sixteen classes of which two are confused, and a sheet of pictures for the mistakes."""
    classes = [f"{name} number {i}" for i, name in enumerate(["animals", "plants", "household", "town", "vehicles", "x", "a name that is rather long for a class", "food"] * 2)]
    confusion = [[i, i, 30 + i] for i in range(16)] + [[0, 3, 12], [5, 1, 1]]
    sheet = {"image": "data:image/jpeg;base64," + SHEET, "columns": 8, "cell": [32, 32], "size": [28, 28]}
    mistakes = [{"sample": 100 + i, "label": i % 16, "predicted": 3, "probability": 0.001 * i} for i in range(8)]
    write_json(run, "evaluation.json", {"epoch": 3, "step": 400, "classes": classes, "confusion": confusion, "mistakes": mistakes, "sheet": sheet})
    write_json(run, "batch.json", {"sheet": sheet, "samples": [{"sample": i, "label": classes[i]} for i in range(8)]})


def odd_ones(folder):
    for name in ("empty", "one", "broken", "live"):
        os.makedirs(os.path.join(folder, name))
    write_lines(os.path.join(folder, "empty"), [])
    write_lines(os.path.join(folder, "one"), [step(1, 0.1, 1.7e9)])
    broken = os.path.join(folder, "broken")
    write_json(broken, "config.json", config(0.1, note=("<img src=x onerror=\"fail('broken out')\"></script><script>fail('out')</script>", "command line")))
    write_json(broken, "batch.json", {"sheet": {"image": "https://example.org/x.jpg"}, "samples": []})
    nothing = {**step(3, 0.1, 1.7e9), "loss": None}
    write_lines(broken, [step(1, 0.1, 1.7e9), "not json", step(2, 0.1, 1.7e9), nothing, step(4, 0.1, 1.7e9), step(5, 0.1, 1.7e9), '{"event":"step",'])
    live = os.path.join(folder, "live")
    write_json(live, "config.json", config(0.1))
    write_lines(live, [step(number, 0.1, time.time() - 20 * 0.03) for number in range(1, 21)])


def main():
    if sys.argv[1] == "--grow":
        for number in range(21, 6021):
            write_lines(sys.argv[2], [{**step(number, 0.1, 0), "time": time.time()}])
            time.sleep(0.01)
        return
    trained(os.path.join(sys.argv[1], "good"), 0.1, 1.0)
    samples(os.path.join(sys.argv[1], "good"))
    trained(os.path.join(sys.argv[1], "other"), 0.05, 1.3)
    odd_ones(sys.argv[1])


main()
