"""How far networks are from exact arithmetic after some steps of fine-tuning: dtrain's, and PyTorch's in two layouts.

usage: after_steps.py DTRAIN FOLDER [--steps 1,2,5] [--seeds N] [--size N] [--single 20,21,100]

The recipe and the batches are those of fine_tune.py; "exact" is PyTorch in float64. A distance is that of all weights
(or running means, or running variances) from the exact ones, as a share of how far those have moved from their first
values. A rule that differs (momentum, decay, unbiased variances, the last incomplete batch) shows in each seed from the
step on at which it differs. Rounding shows only where an activation is so close to 0 that its sign changes, and with it
a share of the gradient: after the first step the layer at which dtrain parts from exact is named, with the channels of
it that part and how close to 0 their activations come. --single: each of these steps taken from dtrain's own state
before it, so that nothing adds up: on the stamps 20 is the last, incomplete batch of an epoch. Exit code 1 where the
median of dtrain's distances over the seeds is more than 4 times the larger one of PyTorch's layouts, where batches were
counted differently, or where a single step is further than 1e-2 from exact.
"""
import argparse, pathlib, statistics, subprocess, tempfile

import torch
from fine_tune import BATCH, DECAY, LR, MOMENTUM, dtrain_command, split
from recipes import recipes
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

GROUPS = {"weights": lambda name: name.endswith(("weight", "bias")),
          "running means": lambda name: name.endswith("running_mean"),
          "running variances": lambda name: name.endswith("running_var")}


def batches(options, data, seed, most):
    train = ImageFolder(data / "train", recipes(options.size, options.size * 8 // 7)["imagenet"])
    sampler = DistributedSampler(train, num_replicas=1, rank=0, seed=seed)
    loader, epoch, step = DataLoader(train, BATCH, sampler=sampler, num_workers=1), 0, 0
    while step < most:
        sampler.set_epoch(epoch)
        torch.manual_seed(seed + epoch)
        for batch in loader:
            if step < most:
                yield batch
            step += 1
        epoch += 1


def first_network(weights, classes, seed):
    torch.manual_seed(seed)
    network = resnet18(num_classes=classes)
    network.load_state_dict({name: t for name, t in load_file(weights).items() if not name.startswith("fc.")}, strict=False)
    return network


def copied(network):
    return {name: tensor.detach().double().clone() for name, tensor in network.state_dict().items()}


def trained(network, given, steps, dtype=torch.float32, layout=torch.contiguous_format):
    network.to(dtype=dtype, memory_format=layout).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    states = {}
    for step, (images, labels) in enumerate(given, 1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images.to(dtype=dtype, memory_format=layout)), labels).backward()
        optimizer.step()
        if step in steps:
            states[step] = copied(network)
    return states


def read_double(file):
    return {name: tensor.double() for name, tensor in load_file(file).items()}


def state_after(options, data, weights, seed, step):
    """dtrain's network and momenta after so many steps: a run each, since a slow disk postpones checkpoints."""
    run = data / f"run-{seed}-{step}"
    subprocess.run(dtrain_command(options, data, weights, seed, run) + ["--max-steps", str(step), "--eval-every", "0"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = run / f"checkpoints/step-{step:08}"
    return read_double(folder / "model.safetensors"), read_double(folder / "optimizer.safetensors")


def single_step(options, data, step, batch):
    """How far dtrain's step is from an exact one from the same state, by group."""
    weights = str(data / "random-0.safetensors")
    (before, momenta), (after, _) = state_after(options, data, weights, 0, step - 1), state_after(options, data, weights, 0, step)
    network = first_network(weights, len(list((data / "train").iterdir())), 0).double()
    network.load_state_dict(before)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    for name, parameter in network.named_parameters():
        optimizer.state[parameter]["momentum_buffer"] = momenta[name + ".momentum_buffer"].reshape(parameter.shape)
    torch.nn.functional.cross_entropy(network.train()(batch[0].double()), batch[1]).backward()
    optimizer.step()
    return {group: distance(after, copied(network), before, chosen) for group, chosen in GROUPS.items()}


def distance(state, exact, first, chosen):
    names = [name for name in exact if chosen(name)]
    away = sum((state[name] - exact[name]).square().sum().item() for name in names)
    moved = sum((exact[name] - first[name]).square().sum().item() for name in names)
    return (away / moved) ** 0.5


def nearest_to_zero(network, images):
    """For each norm whose output (with a shortcut: their sum) goes into a ReLU, how close to 0 each channel comes."""
    found = {}

    def look(name):
        def hook(_, inputs):
            norm = name.replace("relu", "bn1")
            found[norm.replace("bn1", "bn2") if norm in found else norm] = inputs[0].abs().amin(dim=(0, 2, 3))
        return hook

    for name, module in network.double().train().named_modules():
        if name.endswith("relu"):
            module.register_forward_pre_hook(look(name))
    with torch.no_grad():
        network(images.double())
    return found


def parting(state, exact, first, activations):
    """From the last layer back, the first norm of which some channels are far from exact; None: all are near."""
    for name in reversed(activations):
        bias = name + ".bias"
        far = (state[bias] - exact[bias]).abs() / (exact[bias] - first[bias]).abs().mean()
        chosen = far > max(1e-4, 30 * far.median().item())
        if chosen.any():
            return (f"{name}: {int(chosen.sum())} of {len(far)} channels (by {far.max().item():.1e}; the others by "
                    f"{far[~chosen].max().item():.1e}), which come as close to 0 as {activations[name][chosen].min().item():.1e}")
    return None


def compared(options, data, seed):
    """Distances of one seed by (step, group, program), and whether all counted the same batches."""
    weights = str(data / f"random-{seed}.safetensors")
    torch.manual_seed(1000 + seed)
    save_file(resnet18().state_dict(), weights)
    given = list(batches(options, data, seed, max(options.steps)))
    make = lambda: first_network(weights, len(list((data / "train").iterdir())), seed)
    first, exact = copied(make()), trained(make(), given, options.steps, torch.float64)
    programs = {"dtrain": {step: state_after(options, data, weights, seed, step)[0] for step in options.steps}, "PyTorch": trained(make(), given, options.steps),
                "channels-last": trained(make(), given, options.steps, layout=torch.channels_last)}
    if 1 in options.steps:
        activations = nearest_to_zero(make(), given[0][0])
        for name in ("dtrain", "PyTorch"):
            where = parting(programs[name][1], exact[1], first, activations)
            print(f"seed {seed}: after 1 step {name} " + (f"parts from exact at {where}" if where else "has no channel far from exact"), flush=True)
    counts = {(step, int(tensor)) for states in programs.values() for step, state in states.items()
              for name, tensor in state.items() if name.endswith("num_batches_tracked")}
    far = {(step, group, name): distance(states[step], exact[step], first, chosen)
           for step in options.steps for group, chosen in GROUPS.items() for name, states in programs.items()}
    return far, all(step == count for step, count in counts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--single", type=lambda text: [int(part) for part in text.split(",")], default=[20, 21, 100])
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    options.epochs = options.decay_every = 1000
    options.lr = LR
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch)
        split(options.folder, data, options.size * 5 // 4)
        found = [compared(options, data, seed) for seed in range(options.seeds)]
        given = list(batches(options, data, 0, max(options.single)))
        single = {step: single_step(options, data, step, given[step - 1]) for step in options.single}
    failed = not all(counted for _, counted in found) or any(max(far.values()) > 1e-2 for far in single.values())
    for step, far in single.items():
        print(f"step {step} alone, {len(given[step - 1][1])} samples: " + ", ".join(f"{group} {value:.1e}" for group, value in far.items()))
    if failed:
        print("num_batches_tracked differs from the steps that were taken, or a single step is far from exact")
    for step in options.steps:
        for group in GROUPS:
            values = {name: [far[step, group, name] for far, _ in found] for name in ("dtrain", "PyTorch", "channels-last")}
            middle = {name: statistics.median(one) for name, one in values.items()}
            failed |= middle["dtrain"] > 4 * max(middle["PyTorch"], middle["channels-last"])
            print(f"after {step} steps, {group}: " +
                  ", ".join(f"{name} {middle[name]:.1e} ({min(one):.1e} to {max(one):.1e})" for name, one in values.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
