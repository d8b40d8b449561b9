"""Pictures a second of one core, in CPU time, from tar shards to batches of normalised crops: dtrain beside webdataset with
torchvision's transforms and NVIDIA DALI's CPU operators, in turns; medians, spread and ratios.

usage: loaders.py DTRAIN BENCH_IMAGES FOLDER [--most N] [--rounds N] [--photographs]
       (with pillow and torchvision, and what there is of webdataset and nvidia-dali-cuda130)

The JPEGs of FOLDER, or with --photographs pieces of its large ones as images.py makes them, are packed into shards first,
which all sides read, from the page cache, in batches of 32 in a random order. Each side is a process of its own, held on
one core; what all of its threads take counts. Sides whose package is missing are named and left out.
"""
import argparse, importlib.util, os, pathlib, statistics, subprocess, sys, tempfile, time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH, SIZE = 32, 224


def webdataset_batches(shards, transform, decoder):
    """Epochs as webdataset's users read them: a shuffled list of shards and a buffer of samples."""
    import torch
    import webdataset as wds

    torch.set_num_threads(1)
    data = (wds.WebDataset(shards, shardshuffle=len(shards), seed=1).shuffle(1000).to_tuple("jpg", "cls")
            .map_tuple(lambda content: transform(decoder(content)), int).batched(BATCH))

    def epoch():
        return sum(len(labels) for _, labels in wds.WebLoader(data, batch_size=None, num_workers=0))
    return epoch


def by_webdataset_pil(shards, samples):
    import io
    from PIL import Image
    from torchvision import transforms as v1

    transform = v1.Compose([v1.RandomResizedCrop(SIZE), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)])
    return webdataset_batches(shards, transform, lambda content: Image.open(io.BytesIO(content)).convert("RGB"))


def by_webdataset_tensors(shards, samples):
    import torch
    from torchvision import io
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def decode(content):
        return io.decode_image(torch.frombuffer(bytearray(content), dtype=torch.uint8), io.ImageReadMode.RGB)
    return webdataset_batches(shards, transform, decode)


def by_dali(shards, samples):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=1)
    def pipeline():
        jpegs, labels = fn.readers.webdataset(paths=shards, ext=["jpg", "cls"], random_shuffle=True, initial_fill=1000,
                                              missing_component_behavior="skip")  # the names of the classes
        images = fn.decoders.image_random_crop(jpegs, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                               random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                          mean=[255 * m for m in MEAN], std=[255 * s for s in STD])
        return images, labels

    made = pipeline()
    made.build()

    def epoch():
        done = 0
        while done < samples:
            made.run()
            done += BATCH
        return done
    return epoch


SIDES = {"webdataset, PIL": (by_webdataset_pil, "webdataset"), "webdataset, torchvision v2": (by_webdataset_tensors, "webdataset"),
         "DALI, CPU": (by_dali, "nvidia.dali")}


def serve(side, shards, samples):
    """One side's process: a rate for each line of standard input."""
    epoch = SIDES[side][0](shards, samples)
    for _ in sys.stdin:
        begin = time.process_time()
        done = epoch()
        print(done / (time.process_time() - begin), flush=True)


def is_there(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


class Rates:
    """A side's process, held on one core."""

    def __init__(self, name, core, command, line):
        self.name, self.line = name, line
        cores = os.sched_getaffinity(0) if core is None else {core}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def __call__(self):
        self.process.stdin.write(self.line)
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"loaders.py: {self.name}: expected a rate, got exit code {self.process.wait()}; its error is above")
        return float(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def packed(dtrain, folder, most, scratch, photographs):
    """The shards of at most `most` of the folder's JPEGs, or of photographs cut from them, and how many pictures they hold."""
    paths = sorted(p for p in folder.rglob("*.jp*g") if p.read_bytes()[:2] == b"\xff\xd8")
    if photographs:
        from images import write_photographs

        (scratch / "photographs").mkdir()
        paths = write_photographs(paths, most, scratch / "photographs")
    paths = paths[:: max(1, len(paths) // most)][:most]
    if not paths:
        raise SystemExit(f"loaders.py: {folder}: expected JPEGs (*.jpg, *.jpeg) below it, found none")
    (scratch / "in/all").mkdir(parents=True)
    for i, path in enumerate(paths):
        (scratch / f"in/all/{i:06}.jpg").symlink_to(path.resolve())
    subprocess.run([dtrain, "data", "pack", "--dataset", f"folder:{scratch / 'in'}", "--output", scratch / "s", "--shard-mib", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    return [str(p) for p in sorted(scratch.glob("s-*.tar"))], len(paths)


def compare_threads(command, rounds):
    """Prints how much faster two loader threads read than one: a side for each, in turns, and long enough that the last batch,
    beside which a thread has nothing to do, is a hundredth of the time at most."""
    sides = [Rates(f"{count} loader threads", None, command, f"load-{count} 64\n") for count in (1, 2)]
    rates = [[side() for side in sides] for _ in range(rounds + 1)][1:]  # the first warms up
    for side in sides:
        side.end()
    one, two = zip(*rates)
    ratios = sorted(b / a for a, b in rates)
    print(f"dtrain by the clock: {statistics.median(one):.0f} img/s ({min(one):.0f} to {max(one):.0f}) with one loader thread, "
          f"{statistics.median(two):.0f} ({min(two):.0f} to {max(two):.0f}) with two: {statistics.median(ratios):.2f} times "
          f"as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def main():
    if sys.argv[1:2] == ["--side"]:
        return serve(sys.argv[2], sys.argv[4:], int(sys.argv[3]))
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--photographs", action="store_true")
    options = parser.parse_args()
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        shards, samples = packed(options.dtrain, options.folder, options.most, scratch, options.photographs)
        pattern = f"{scratch}/s-*.tar"
        print(f"{samples} JPEGs in {len(shards)} shards; {options.rounds} rounds in turns; load {os.getloadavg()[0]:.1f}")
        own = [options.program, f"shards:{pattern},test={pattern}"]
        sides = [Rates("dtrain", core, own, "load 1\n")]
        for name, (_, package) in SIDES.items():
            if is_there(package):
                sides.append(Rates(name, core, [sys.executable, __file__, "--side", name, str(samples), *shards], "\n"))
            else:
                print(f"{name}: left out, no {package} in {sys.executable}")
        rates = {side.name: [] for side in sides}
        for number in range(options.rounds + 1):
            for side in sides:
                rate = side()
                if number > 0:  # the first warms up
                    rates[side.name].append(rate)
        for side in sides:
            side.end()
        for name, values in rates.items():
            ratios = sorted(a / b for a, b in zip(rates["dtrain"], values))
            print(f"{name:26} {statistics.median(values):7.0f} img/s ({min(values):.0f} to {max(values):.0f})" + (
                "" if name == "dtrain" else f"   dtrain is {statistics.median(ratios):.2f} times as fast "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f})"))
        if len(os.sched_getaffinity(0)) > 1:
            compare_threads(own, options.rounds)
        print(f"load {os.getloadavg()[0]:.1f}")


main()
