"""Pictures a second of one core, in CPU time: JPEGs that are decoded each time, and those that --image-cache-mib keeps decoded, in
turns, in one run; medians, spread and ratios.

usage: cached.py BENCH_IMAGES FOLDER [--most N] [--rounds N]
"""
import argparse, pathlib, statistics, subprocess


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    paths = sorted(p for p in options.folder.rglob("*.jpg") if p.read_bytes()[:2] == b"\xff\xd8")
    paths = paths[:: max(1, len(paths) // options.most)][: options.most]
    if not paths:
        raise SystemExit(f"cached.py: no JPEG in {options.folder}")
    process = subprocess.Popen([options.program, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(work):
        process.stdin.write(f"{work} 1\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    print(f"{len(paths)} JPEGs; {options.rounds} rounds in turns")
    for work in ("train", "evaluate"):
        rates = {kind: [] for kind in (work, "cached-" + work)}
        for number in range(options.rounds + 1):
            for kind in rates:
                value = rate(kind)
                if number > 0:  # the first warms up
                    rates[kind].append(value)
        ratios = sorted(b / a for a, b in zip(*rates.values()))
        said = ", ".join(f"{kind} {statistics.median(v):.0f} img/s ({min(v):.0f} to {max(v):.0f})" for kind, v in rates.items())
        print(f"{said}: {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    process.stdin.close()
    process.wait()


main()
