"""The learning rates of runs by ImageNet's recipes beside those of the papers and scripts they come from, step by step, on
data that make an epoch of eight steps; and how their pictures are augmented. usage: recipe_curves.py DTRAIN"""
import json, math, pathlib, subprocess, sys, tempfile

STEPS = 8  # an epoch


def classic(step):
    return 0.1 * 0.1 ** (step // STEPS // 30)


def large_batch(step):
    """Goyal et al. 2017, of a batch of 8,192: from 0.1 in five epochs to 3.2, then a tenth at 30, 60 and 80."""
    top, warm, epoch = 0.1 * 8192 / 256, 5 * STEPS, step // STEPS
    return 0.1 + (top - 0.1) * (step + 1) / warm if step < warm else top * 0.1 ** sum(epoch >= at for at in (30, 60, 80))


def torchvision(step):
    """LinearLR from a hundredth, then CosineAnnealingLR, whose epochs are cut into steps here."""
    warm = 5 * STEPS
    if step < warm:
        return 0.5 * (0.01 + 0.99 * (step + 1) / warm)
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (600 * STEPS - warm))) / 2


def sixteen_epochs(step):
    """ffcv-imagenet's get_cyclic_lr: along a line to 1.7 in two epochs, down to 0 in the other 14. In the warmup a step has the rate
    that FFCV's next one has."""
    warm, top = 2 * STEPS, 1.7
    return top * (1e-4 + (1 - 1e-4) * (step + 1) / warm) if step < warm else top * (1 - (step - warm) / (14 * STEPS))


def lars(step):
    """MLPerf's reference point for 32,768: 21.2 after 16 epochs, then the square of what is left of 58, to 1e-4."""
    warm, top, least = 16 * STEPS, 21.2, 1e-4
    return top * (step + 1) / warm if step < warm else least + (top - least) * (1 - (step - warm) / (42 * STEPS)) ** 2


RECIPES = {"imagenet-classic": (classic, 90, 256), "imagenet-torchvision": (torchvision, 600, 1024), "imagenet-large-batch": (large_batch, 90, 8192),
           "imagenet-16-epochs": (sixteen_epochs, 16, 4096), "imagenet-lars": (lars, 58, 32768)}


def rates(dtrain, recipe, folder, batch):
    """Of each step. The batch is the recipe's, of samples that cost nothing."""
    run = folder / recipe
    subprocess.run([dtrain, "train", "--recipe", recipe, "--model", "linear", "--augment", "none", "--dataset", f"synthetic:1x2x2,4,{STEPS * batch}",
                    "--eval-every", "0", "--log-every", "1", "--checkpoint-every", "0", "--run-dir", run], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["lr"] for line in lines if line["event"] == "step"]


AUGMENTED = {"imagenet-classic": "imagenet", "imagenet-torchvision": "crop,flip,trivialaugment,erase=0.1,size=176",
             "imagenet-large-batch": "imagenet", "imagenet-16-epochs": "crop,flip,size=160/192/11/13", "imagenet-lars": "imagenet"}


def augmentation(dtrain, recipe):
    """As the refusal of data that are no pictures in files names it."""
    refused = subprocess.run([dtrain, "train", "--recipe", recipe, "--model", "linear", "--dataset", "synthetic:1x2x2,4,64"],
                             capture_output=True, text=True)
    assert refused.returncode != 0, recipe
    return refused.stderr.split('got "')[1].split('"')[0]


def main(dtrain):
    with tempfile.TemporaryDirectory() as scratch:
        for recipe, (expected, epochs, batch) in RECIPES.items():
            found = augmentation(dtrain, recipe)
            assert found == AUGMENTED[recipe], (recipe, found)
            found = rates(dtrain, recipe, pathlib.Path(scratch), batch)
            assert len(found) == epochs * STEPS, (recipe, len(found))
            for step, rate in enumerate(found):
                assert abs(rate - expected(step)) <= 1e-12 + 1e-9 * expected(step), (recipe, step, rate, expected(step))
            shown = [0, 2, 4, 5, 12, 15, 16, 29, 30, 57, 59, 60, 79, 80, 89, 300, 599]
            print(recipe + ": " + ", ".join(f"epoch {e}: {found[e * STEPS]:.4g}" for e in shown if e < epochs))


if __name__ == "__main__":
    main(sys.argv[1])
