"""Pictures a second of one core, in CPU time: progressive JPEGs as they are, and as `dtrain data pack` writes them, in turns,
in one run; medians, spread and ratios.

usage: packed.py DTRAIN BENCH_IMAGES FOLDER [--most N] [--rounds N]    (FOLDER has progressive JPEGs among its files)
"""
import argparse, pathlib, statistics, subprocess, tarfile, tempfile


def is_progressive(content):
    """Whether the frame's header says that coefficients come in several scans."""
    at = 2
    while content[:2] == b"\xff\xd8" and content[at:at + 1] == b"\xff":
        if content[at + 1] in (0xC2, 0xDA):
            return content[at + 1] == 0xC2
        at += 2 + int.from_bytes(content[at + 2:at + 4], "big")
    return False


def write_folder(paths, folder):
    """Links in one class, in order."""
    folder.mkdir(parents=True)
    for i, path in enumerate(paths):
        (folder / f"{i:06}.jpg").symlink_to(path.resolve())
    return sorted(folder.iterdir())


def packed(dtrain, scratch):
    """The files that pack makes of the pictures in scratch/in, in order."""
    subprocess.run([dtrain, "data", "pack", "--dataset", f"folder:{scratch / 'in'}", "--output", scratch / "s"], check=True)
    files = []
    for shard in sorted(scratch.glob("s-*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    files.append(scratch / member.name)
                    files[-1].write_bytes(archive.extractfile(member).read())
    return files


class Rates:
    """One bench_images with the files in memory."""

    def __init__(self, program, files):
        self.process = subprocess.Popen([program, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, work):
        self.process.stdin.write(f"{work} 1\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    paths = sorted(p for p in options.folder.rglob("*.jp*g") if is_progressive(p.read_bytes()))
    paths = paths[:: max(1, len(paths) // options.most)][: options.most]
    if not paths:
        raise SystemExit(f"packed.py: no progressive JPEG in {options.folder}")
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        before, after = write_folder(paths, scratch / "in/all"), packed(options.dtrain, scratch)
        sizes = [sum(p.stat().st_size for p in files) for files in (before, after)]
        print(f"{len(before)} progressive JPEGs, {sizes[0] / 1e6:.1f} MB, packed {sizes[1] / 1e6:.1f} MB; {options.rounds} rounds in turns")
        kinds = {"unpacked": Rates(options.program, before), "packed": Rates(options.program, after)}
        for work in ("decode", "train", "evaluate"):
            rates = {kind: [] for kind in kinds}
            for number in range(options.rounds + 1):
                for kind, rate in kinds.items():
                    value = rate(work)
                    if number > 0:  # the first warms up
                        rates[kind].append(value)
            ratios = sorted(b / a for a, b in zip(rates["unpacked"], rates["packed"]))
            said = ", ".join(f"{kind} {statistics.median(v):.0f} img/s ({min(v):.0f} to {max(v):.0f})" for kind, v in rates.items())
            print(f"{work:9} {said}: {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        for rate in kinds.values():
            rate.process.stdin.close()
            rate.process.wait()


main()
