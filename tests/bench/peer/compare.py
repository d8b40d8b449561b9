"""Runs dtrain and PyTorch in turns and prints one table: images/s, time from launch to the first finished step, memory
of a worker. PyTorch is run in every way that may be the best for it, and its best value of each kind is the one that
dtrain is compared with."""
import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from pathlib import Path

import programs


# Batch norm makes the losses of ResNet-18 drift apart quickly at larger ones.
LEARNING_RATE = {"lenet": "0.05", "resnet18": "0.001"}
LOSSES_AGREE = {("lenet", "fp32"): 1e-3, ("lenet", "bf16"): 2e-2, ("resnet18", "fp32"): 2e-2, ("resnet18", "bf16"): 5e-2}
LOG_EVERY = 10  # steps of a timed run


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch", default="256", help="global batch sizes, comma-separated (also worth a look: 64,1024)")
    p.add_argument("--model", choices=["lenet", "resnet18"], default="lenet")
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast in both programs")
    p.add_argument("--rounds", type=int, default=5, help="rounds; in each every program runs once, in turning order")
    p.add_argument("--steps", type=int, default=120, help="steps of a timed run")
    p.add_argument("--warmup", type=int, default=20, help="steps before the timing begins")
    p.add_argument("--data-dir", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--channels-last", action="store_true", help="also run PyTorch with channels_last")
    p.add_argument("--compile", action="store_true", help="also run PyTorch with torch.compile")
    p.add_argument("--only-peer", action="store_true", help="leave dtrain out (to try the peer)")
    p.add_argument("--out", help="write everything measured to this JSON file")
    p.add_argument("--keep", help="keep run directories and outputs in this folder")
    a = p.parse_args()
    first = -(-a.warmup // LOG_EVERY) * LOG_EVERY  # the timing is from one logged step to the last
    if a.warmup < 1 or first >= a.steps or a.rounds < 1:
        p.error(f"expected at least one round and a logged step (every {LOG_EVERY}th) from --warmup on before the last, "
                f"got --warmup {a.warmup} of --steps {a.steps}, --rounds {a.rounds}")
    return a


def make_programs(a):
    # float32 in memory makes the quickest batches, bytes the smallest worker: both are PyTorch used well.
    same = (a.model, a.precision, LEARNING_RATE[a.model])
    peers = [programs.pytorch("PyTorch DDP", a.data_dir, [], *same)]
    if a.model == "lenet":  # beside a larger network the images do not count
        peers.append(programs.pytorch("PyTorch DDP, bytes", a.data_dir, ["--storage", "uint8"], *same))
    if a.channels_last:
        peers.append(programs.pytorch("PyTorch DDP, channels last", a.data_dir, ["--channels-last"], *same))
    if a.compile:
        peers.append(programs.pytorch("PyTorch DDP, compiled", a.data_dir, ["--compile"], *same))
    return peers + ([] if a.only_peer else [programs.dtrain(a.data_dir, [], *same)])


def measure(a, batch, everyone, folder):
    """{program: {metric: [one value a round]}}, and each program's losses by step for the check of equal work."""
    values = {p.name: {"images_per_second": [], "first_step_seconds": [], "run_seconds_one_step": []} for p in everyone}
    losses = {}
    for round_index in range(a.rounds):
        turn = round_index % len(everyone)
        for p in everyone[turn:] + everyone[:turn]:
            where = folder / f"{p.name.replace(' ', '-')}-{batch}-{round_index}"
            speed = programs.run(p, batch, a.steps, LOG_EVERY, 0, f"{where}-speed")
            start = programs.run(p, batch, 1, 1, 0, f"{where}-start")
            mine = values[p.name]
            mine["images_per_second"].append(speed.images_per_second(batch, a.warmup))
            mine["first_step_seconds"].append(start.first_step_seconds())
            mine["run_seconds_one_step"].append(start.ended - start.started)
            losses[p.name] = speed.loss_at(LOG_EVERY)
            print(f"  round {round_index + 1}, {p.name}: {mine['images_per_second'][-1]:.0f} images/s, first step after "
                  f"{mine['first_step_seconds'][-1]:.3f} s", flush=True)
    for p in everyone:
        where = folder / f"{p.name.replace(' ', '-')}-{batch}-memory"
        watched = programs.run(p, batch, a.steps, LOG_EVERY, 0, where, True)
        values[p.name].update({f"{k}_mib": [v] for k, v in watched.memory.items()})
    return values, losses


def check_equal_work(losses, bound):
    """Both train the same network on the same images in the same order, so after ten steps the losses agree."""
    reference = next(iter(losses.values()))
    for name, loss in losses.items():
        if abs(loss - reference) > bound:
            raise SystemExit(f"{name}: loss {loss} at step 10, PyTorch has {reference}: not the same work; nothing to compare")


METRICS = [("images_per_second", "images/s, steady", "{:.0f}", max),
           ("first_step_seconds", "launch to first finished step, s", "{:.3f}", min),
           ("run_seconds_one_step", "whole run of one step, s", "{:.3f}", min),
           ("peak_mib", "peak memory of a worker, MiB", "{:.0f}", min),
           ("resident_mib", "resident memory of a worker, MiB", "{:.0f}", min),
           ("proportional_mib", "its share (PSS), MiB", "{:.0f}", min)]


def print_table(batch, rounds, values):
    names = list(values)
    width = max(len(n) for n in names) + 14
    print(f"\nglobal batch {batch}, {programs.WORKERS} workers × 1 thread, median of {rounds} rounds [least … most]\n")
    print(f"{'':34}" + "".join(f"{n:>{width}}" for n in names) + f"{'ratio to the best peer':>26}")
    ratios = {}
    for key, title, form, best in METRICS:
        if any(key not in values[n] for n in names):
            continue
        cells, medians = "", {}
        for n in names:
            v = values[n][key]
            medians[n] = statistics.median(v)
            spread = f" [{form.format(min(v))} … {form.format(max(v))}]" if len(v) > 1 else ""
            cells += f"{form.format(medians[n]) + spread:>{width}}"
        ratio = ""
        if "dtrain" in medians:
            peer = best(m for n, m in medians.items() if n != "dtrain")
            ratios[key] = medians["dtrain"] / peer if best is max else peer / medians["dtrain"]
            ratio = f"{ratios[key]:.2f}× better" if ratios[key] >= 1 else f"{1 / ratios[key]:.2f}× worse"
        print(f"{title:34}{cells}{ratio:>26}")
    return ratios


def print_profiles(a, batch, everyone, folder):
    """Where a step's time goes, as each program tells it in summary.json (`phase_milliseconds_per_step`)."""
    profiles = {}
    for p in everyone:
        profiled = programs.Program(p.name, p.command, p.extra + ["--profile"])
        try:
            where = folder / f"{p.name.replace(' ', '-')}-{batch}-profile"
            done = programs.run(profiled, batch, a.steps, LOG_EVERY, 0, where)
            profiles[p.name] = done.summary().get("phase_milliseconds_per_step", {})
        except RuntimeError as error:
            print(f"\n{p.name}: no profile: {error}")
    for name, parts in profiles.items():
        print(f"\nwhere a step's time goes, {name} (ms): " + (", ".join(f"{k} {v:.2f}" for k, v in parts.items()) or "not told"))
    return profiles


def main():
    a = parse_arguments()
    folder = Path(a.keep or tempfile.mkdtemp(prefix="dtrain-vs-pytorch-"))
    everyone = make_programs(a)
    import torch  # only for its version: the workers import their own

    print(f"{a.model}, {a.precision}: dtrain beside PyTorch {torch.__version__} on {os.cpu_count()} cores ({platform.machine()}); load before: "
          f"{os.getloadavg()[0]:.2f} (a busy machine makes these figures worthless)")
    report = {"torch": torch.__version__, "cores": os.cpu_count(), "load_before": os.getloadavg()[0], "batches": {}}
    try:
        for batch in map(int, a.batch.split(",")):
            values, losses = measure(a, batch, everyone, folder)
            check_equal_work(losses, LOSSES_AGREE[a.model, a.precision])
            ratios = print_table(batch, a.rounds, values)
            profiles = print_profiles(a, batch, everyone, folder)
            report["batches"][batch] = {"values": values, "ratios": ratios, "loss_at_step_10": losses,
                                        "phase_milliseconds_per_step": profiles}
    finally:
        if not a.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if a.out:
        Path(a.out).write_text(json.dumps(report, indent=1) + "\n")
        print(f"\neverything measured is in {a.out}")


if __name__ == "__main__":
    main()
