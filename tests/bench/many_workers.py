"""What a launcher of many workers on one node takes: the time until all of them run, the threads, descriptors and memory
of its processes, the time for their output to pass through it, and the time until nothing is left after SIGTERM and
after SIGKILL of the launcher. Medians (least to most). The exit code is 1 where a line of output is lost, a process is
left after 30 s, or a process of the launcher has more than one thread.

usage: python3 tests/bench/many_workers.py BIN [--workers 256] [--rounds 5] [--lines 2000]      (BIN has dtrain-launch)
"""
import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import time

LINE = 100  # bytes


def children(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split()[1]
    raise ValueError(f"/proc/{pid}/status: expected {field}")


def left(word):
    """Processes whose command line has this word."""
    found = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found += word in (process / "cmdline").read_bytes()
        except OSError:
            pass
    return found


class Job:
    def __init__(self, launcher, workers, script):
        self.begin = time.monotonic()
        self.process = subprocess.Popen([launcher, f"--nproc_per_node={workers}", "sh", "-c", script],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def seconds(self):
        return time.monotonic() - self.begin

    def own(self):
        """The launcher and those of its descendants that are no workers, by name."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            if status(pid, "Name") in ("sh", "sleep"):
                continue
            found.append(pid)
            waiting += children(pid)
        return sorted(found)

    def seconds_to_end(self, number, word):
        """From the signal until no process with this word is left; None after 30 s."""
        begin = time.monotonic()
        self.process.send_signal(number)
        self.process.stdout.close()
        self.process.wait()
        while left(word) > 0:
            if time.monotonic() - begin > 30:
                return None
            time.sleep(0.002)
        return time.monotonic() - begin


def text(values, scale=1.0, digits=0):
    one = [scale * value for value in values]
    return f"{statistics.median(one):.{digits}f} ({min(one):.{digits}f} to {max(one):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=2000, help=f"of {LINE} bytes, of each worker")
    options = parser.parse_args()
    launcher, workers = options.bin / "dtrain-launch", options.workers
    good, start, output, ends, held = True, [], [], {signal.SIGTERM: [], signal.SIGKILL: []}, []

    for number in range(options.rounds):
        for how, times in ends.items():
            seconds = f"600.{os.getpid()}{number}{how.value}"  # a number that no other sleep has
            job = Job(launcher, workers, f"echo up; exec sleep {seconds}")
            for _ in range(workers):
                good = job.process.stdout.readline() == b"up\n" and good
            start.append(job.seconds())
            own = job.own()
            held = [(status(pid, "Name"), int(status(pid, "Threads")), len(os.listdir(f"/proc/{pid}/fd")),
                     int(status(pid, "VmRSS")) / 1024) for pid in own]
            took = job.seconds_to_end(how, seconds.encode())
            good = good and took is not None
            times.append(took or 30)
        # awk, so that what is measured is the launcher and not a shell that writes lines
        job = Job(launcher, workers, f"exec awk 'BEGIN {{ for (i = 0; i < {options.lines}; ++i) "
                                     f"printf \"%0{LINE - 1}d\\n\", i }}'")
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: job.process.stdout.read(1 << 20), b""))
        good = job.process.wait() == 0 and lines == workers * options.lines and good
        output.append(job.seconds())

    megabytes = workers * options.lines * LINE / 1e6
    print(f"{workers} workers on {os.cpu_count()} cores, {options.rounds} rounds, "
          f"load {os.getloadavg()[0]:.1f}; medians (least to most)")
    print(f"all workers run after                  {text(start, 1e3)} ms")
    print(f"{megabytes:.0f} MB of output, start and end included  {text(output, digits=2)} s")
    for how, times in ends.items():
        print(f"nothing is left after {how.name:<7}          {text(times, 1e3)} ms")
    print("process            threads  descriptors  resident MiB")
    for name, threads, descriptors, resident in held:
        good = good and threads == 1
        print(f"{name:<18} {threads:>7} {descriptors:>12} {resident:>13.1f}")
    print("good" if good else "MISSED: a line was lost, a process was left, or there are more threads than one")
    return 0 if good else 1


raise SystemExit(main())
