"""Seconds of CPU that dtrain takes to index tar shards of a million members, and to start with the index kept.

usage: index.py DTRAIN [--samples N] [--rounds N]

Makes 50 shards of N / 50 samples (a picture and a .cls each; 1 GB for the default of 500,000) in a temporary folder, and
starts a run of no steps in turns with one of one step and one on data that needs no list: a first start, then N with
the list kept.
"""
import argparse, io, os, pathlib, shutil, statistics, struct, subprocess, tarfile, tempfile, time, zlib

SHARDS = 50


def png():
    """A gray picture of one pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(
        b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")


def member(name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def make_shards(folder, samples):
    picture, number = png(), 0
    for shard in range(SHARDS):
        with open(folder / f"s-{shard:02}.tar", "wb") as out:
            for _ in range(samples // SHARDS):
                out.write(member(f"{number:07}.png", picture) + member(f"{number:07}.cls", b"%d" % (number % 10)))
                number += 1
            out.write(bytes(1024))


def start(dtrain, folder, dataset, steps=0):
    """Seconds of CPU, MB of memory at most, and seconds by the clock of a run of `steps` steps."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    command = [dtrain, "train", "--model", "linear", "--dataset", dataset, "--max-steps", str(steps), "--eval-every", "0",
               "--checkpoint-every", "0", "--threads", "1", "--run-dir", folder / "run"]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"index.py: {command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain")
    parser.add_argument("--samples", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_shards(folder, options.samples)
        shards = f"shards:{folder}/s-{{00..{SHARDS - 1}}}.tar,test={folder}/s-00.tar,classes=10"
        first, *_ = start(options.dtrain, folder, shards)
        kept, stepped, plain = [], [], []
        for _ in range(options.rounds):
            kept.append(start(options.dtrain, folder, shards))
            stepped.append(start(options.dtrain, folder, shards, steps=1))
            plain.append(start(options.dtrain, folder, f"synthetic:3x224x224,10,{options.samples}"))
        size = sum(p.stat().st_size for p in (folder / "cache").rglob("*") if p.is_file())
        (cpu, memory, _), (_, _, clock), (plain_cpu, plain_memory, _) = (list(zip(*runs)) for runs in (kept, stepped, plain))
        print(f"{options.samples} samples, {2 * options.samples} members: first start {first:.3f} s; with the list kept "
              f"{statistics.median(cpu):.3f} s ({min(cpu):.3f} to {max(cpu):.3f}), without any "
              f"{statistics.median(plain_cpu):.3f} s ({min(plain_cpu):.3f} to {max(plain_cpu):.3f}); the list has {size:,} bytes, "
              f"and takes {statistics.median(memory) - statistics.median(plain_memory):.0f} MB of memory; a run of one step with "
              f"the list kept takes {statistics.median(clock):.3f} s by the clock ({min(clock):.3f} to {max(clock):.3f})")


main()
