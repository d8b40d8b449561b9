"""Writes made/ (small pictures of every kind) and golden.json: CRC-32 of what Pillow and torchvision make of them.

usage: make_golden.py    (with pillow and torchvision; another version of Pillow may write other files)
"""
import json, pathlib, random, shutil, sys, zlib

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent.parent / "strangers" / "pictures"))
from made_pictures import make_pictures, save, picture
from recipes import AMOUNTS, changed, recipes

LOADED = "imagenet,jitter=0.4/0.3/0.2/0.1,erase=0.5"
CHANGED = ("0-RGB.png", "0-420-False.jpg", "0-1.png", "wide.jpg")  # as they are, and as squares


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def expected_of(path):
    with Image.open(path) as opened:
        theirs = opened.convert("RGB")
    pixels, rng = np.asarray(theirs), random.Random(path.name)
    width, height = rng.randint(1, theirs.width), rng.randint(1, theirs.height)
    left, top = rng.randint(0, theirs.width - width), rng.randint(0, theirs.height - height)
    entry = {"file": path.name, "width": theirs.width, "height": theirs.height, "crc32": crc(pixels),
             "part": [left, top, width, height], "part_crc32": crc(pixels[top : top + height, left : left + width]),
             "resized": [], "transformed": {}}
    for filter_name, method in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
        for size in ((17, 90), (90, 17), (theirs.width, 30), (40, theirs.height), (224, 224)):
            entry["resized"].append([*size, filter_name, crc(np.asarray(theirs.resize(size, method)))])
    for text, recipe in recipes(32, 37).items():
        crcs = entry["transformed"][text] = []
        for seed in range(1 if text == "none" else 6):
            torch.manual_seed(seed)
            crcs.append(crc(recipe(theirs).numpy()))
    if path.name in CHANGED:
        square = theirs.resize((40, 40), Image.BILINEAR)
        entry["changed"] = [[kind, amount, crc(np.asarray(changed(theirs, kind, amount))), crc(np.asarray(changed(square, kind, amount)))]
                            for kind, amounts in AMOUNTS.items() for amount in amounts]
    return entry


class Pictures(torch.utils.data.Dataset):
    def __init__(self, paths, recipe):
        self.pictures, self.recipe = [Image.open(path).convert("RGB") for path in paths], recipe

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.recipe(self.pictures[index])


def loaded(paths, workers):
    """Batches of two epochs, as --like-torchvision promises them."""
    dataset = Pictures(paths, recipes(32, 37)[LOADED])
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    loader = torch.utils.data.DataLoader(dataset, batch_size=5, sampler=sampler, num_workers=workers)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        torch.manual_seed(3 + epoch)
        epochs.append({"order": list(sampler), "batches": [crc(batch.numpy()) for batch in loader]})
    return epochs


def main():
    made = here / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    make_pictures(made, [(61, 45)])
    save(made, "wide.jpg", picture(150, 8))  # no crop of it fits: the middle is taken
    golden = {"pillow": PIL.__version__, "torchvision": torchvision.__version__,
              "pictures": [expected_of(path) for path in sorted(made.iterdir())]}
    with open(here / "golden.json", "w") as out:
        out.write("{\"pillow\": \"%s\", \"torchvision\": \"%s\", \"pictures\": [\n" % (golden["pillow"], golden["torchvision"]))
        out.write(",\n".join(json.dumps(entry) for entry in golden["pictures"]) + "\n],\n")
        loads = {str(workers): loaded(sorted(made.iterdir()), workers) for workers in (0, 1, 4)}
        out.write(f'"augment": "{LOADED}", "loaded": {json.dumps(loads)}}}\n')


main()
