"""Writes resnet50_shapes.json: names and shapes of torchvision.models.resnet50().state_dict(), in order.

Uses torchvision where it is installed; the same list is spelled out below for where it is not.
"""
import json
import pathlib


def norm(name, c):
    return [[f"{name}.{k}", [c]] for k in ("weight", "bias", "running_mean", "running_var")] + [
        [f"{name}.num_batches_tracked", []]]


def spelled_out():
    out = [["conv1.weight", [64, 3, 7, 7]]] + norm("bn1", 64)
    cin = 64
    for layer, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
        for b in range(blocks):
            p = f"layer{layer}.{b}"
            out += [[f"{p}.conv1.weight", [width, cin, 1, 1]]] + norm(f"{p}.bn1", width)
            out += [[f"{p}.conv2.weight", [width, width, 3, 3]]] + norm(f"{p}.bn2", width)
            out += [[f"{p}.conv3.weight", [4 * width, width, 1, 1]]] + norm(f"{p}.bn3", 4 * width)
            if b == 0:
                out += [[f"{p}.downsample.0.weight", [4 * width, cin, 1, 1]]] + norm(f"{p}.downsample.1", 4 * width)
            cin = 4 * width
    return out + [["fc.weight", [1000, 2048]], ["fc.bias", [1000]]]


shapes = spelled_out()
try:
    from torchvision.models import resnet50

    assert shapes == [[k, list(v.shape)] for k, v in resnet50().state_dict().items()]
except ImportError:
    print("torchvision is not installed: not compared with it")
path = pathlib.Path(__file__).parent / "resnet50_shapes.json"
path.write_text("[\n" + ",\n".join(json.dumps(s) for s in shapes) + "\n]\n")
