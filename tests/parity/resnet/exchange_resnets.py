"""torchvision's residual networks in and out of dtrain, bit for bit, and with another head.

usage: exchange_resnets.py DTRAIN
"""
import pathlib, subprocess, sys, tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file

from make_family import MODELS


def saved_by(dtrain, folder, model, *more):
    """A run's initial tensors."""
    run = folder / f"run-{len(list(folder.iterdir()))}"
    subprocess.run([dtrain, "train", "--model", model, "--dataset", "synthetic:3x64x64,7,8", "--max-steps", "1",
                    "--global-batch-size", "4", "--eval-every", "0", "--checkpoint-at-start", "--run-dir", run, *more],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return load_file(sorted((run / "checkpoints").glob("step-*"))[0] / "model.safetensors")


def random_state(theirs, classes):
    torch.manual_seed(1)
    network = getattr(torchvision.models, theirs)(num_classes=classes)
    for name, buffer in network.named_buffers():
        buffer.copy_(torch.rand(buffer.shape) + 0.5 if buffer.is_floating_point() else torch.tensor(12))
    return network.state_dict()


def differing(a, b):
    return [name for name in a if name not in b or a[name].dtype != b[name].dtype or not torch.equal(a[name], b[name])]


def main(dtrain):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for ours, theirs in MODELS.items():
            state = random_state(theirs, 7)
            save_file(state, folder / f"{theirs}.safetensors")
            written = saved_by(dtrain, folder, ours, "--init-from", folder / f"{theirs}.safetensors")
            assert list(sorted(written)) == sorted(state) and not differing(state, written), differing(state, written)
            getattr(torchvision.models, theirs)(num_classes=7).load_state_dict(written, strict=True)
            print(f"{ours}: {len(state)} tensors equal")
        save_file(random_state("resnet18", 1000), folder / "head.safetensors")
        drawn = saved_by(dtrain, folder, "resnet18-imagenet")
        written = saved_by(dtrain, folder, "resnet18-imagenet", "--init-partial", "--init-from", folder / "head.safetensors")
        assert sorted(differing(random_state("resnet18", 1000), written)) == ["fc.bias", "fc.weight"]
        assert all(torch.equal(written[name], drawn[name]) for name in ("fc.bias", "fc.weight"))
        print("another head: 2 tensors as drawn")


if __name__ == "__main__":
    main(sys.argv[1])
