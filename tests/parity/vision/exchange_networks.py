"""timm's and torchvision's networks in and out of dtrain, bit for bit.

usage: exchange_networks.py DTRAIN
"""
import pathlib, subprocess, sys, tempfile

import torch
from safetensors.torch import load_file, save_file

import numpy
from PIL import Image

from make_networks import FRAMES, NETWORKS

SIZES = {"inception-resnet-v2": 96}  # of images; a step of the others takes 32


def data_for(model, folder, size):
    """Four samples that the network takes."""
    if model in FRAMES:
        numpy.save(folder / "clip.npy", numpy.zeros((4, 8, 3, size, size), numpy.uint8))
        numpy.save(folder / "label.npy", numpy.array([0, 1, 2, 6]))
        return f"npy:clip={folder}/clip.npy,label={folder}/label.npy,classes=7,split=0.5"
    if model.startswith("fcn"):
        (folder / "data").mkdir()
        for i in range(4):
            Image.new("RGB", (size, size), (i, 9, 99)).save(folder / "data" / f"{i}.png")
            Image.fromarray(numpy.full((size, size), i, numpy.uint8)).save(folder / "data" / f"{i}.seg.png")
        return f"folder:{folder}/data,mask=seg.png,classes=7,size={size},split=0.5"
    return f"synthetic:3x{size}x{size},7,4"


def written_by(dtrain, folder, model, state, size):
    """The tensors of a run that began with `state`, before its first step."""
    save_file(state, folder / "theirs.safetensors")
    run = folder / model
    subprocess.run([dtrain, "train", "--model", model, "--dataset", data_for(model, folder, size), "--max-steps", "1",
                    "--global-batch-size", "2", "--eval-every", "0", "--checkpoint-at-start", "--run-dir", run,
                    "--init-from", folder / "theirs.safetensors"], check=True, stdout=subprocess.DEVNULL)
    return load_file(sorted((run / "checkpoints").glob("step-*"))[0] / "model.safetensors")


def main(dtrain):
    for model, (make, _) in NETWORKS.items():
        size = SIZES.get(model, 32)
        torch.manual_seed(1)
        network = make(7, size)
        state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        for name, tensor in state.items():
            if name.endswith(("running_mean", "running_var")):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
        with tempfile.TemporaryDirectory() as scratch:
            written = written_by(dtrain, pathlib.Path(scratch), model, state, size)
        assert sorted(written) == sorted(state), set(written) ^ set(state)
        assert all(written[name].dtype == tensor.dtype and torch.equal(written[name], tensor) for name, tensor in state.items())
        make(7, size).load_state_dict(written, strict=True)
        print(f"{model}: {len(state)} tensors equal")


if __name__ == "__main__":
    main(sys.argv[1])
