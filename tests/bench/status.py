"""What it costs a job that its status can be asked for: the worker's part of each step, and the launcher's CPU time for
each answer, as shares of a training step.

A worker pays on every step (bench_status measures the nanoseconds); the launcher pays when somebody asks, and takes that
time from the workers where they use all cores. The job is two workers of a small model, whose steps are as short as
they get. Shares below the limit (0.1 %) are what the documentation says; the exit code is 1 when one is not.

usage: python3 tests/bench/status.py BIN BENCH_STATUS [--seconds 10] [--every 15]
       (BIN: the folder of dtrain and dtrain-launch; BENCH_STATUS: the program, built with -DDTRAIN_BUILD_BENCHMARKS=ON)
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

LIMIT = 1e-3


def ask(path, what):
    """The body of a GET on a launcher's Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(f"GET {what} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer.split(b"\r\n\r\n", 1)[1].decode()


def cpu_seconds(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps_per_second(path, seconds, every):
    """Of the job, while it is asked each `every` seconds (0: not at all)."""
    begin, first = time.monotonic(), json.loads(ask(path, "/status"))["step"]
    while time.monotonic() - begin < seconds:
        time.sleep(every or seconds)
        if every:
            ask(path, "/metrics")
    return (json.loads(ask(path, "/status"))["step"] - first) / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("bench_status", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of the rate")
    parser.add_argument("--every", type=float, default=15, help="seconds between two questions, as Prometheus asks")
    parser.add_argument("--requests", type=int, default=300, help="to take the launcher's CPU time from")
    options = parser.parse_args()
    alone, read = map(float, subprocess.run([options.bench_status], check=True, capture_output=True,
                                            text=True).stdout.split())
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/metrics"
        # No checkpoints and no evaluation: steps, and nothing else.
        command = [options.bin / "dtrain-launch", "--metrics-listen", f"unix:{path}", "--nproc_per_node=2", "dtrain",
                   "train", "--model", "mlp", "--dataset", "synthetic:1x8x8,10,4096", "--epochs", "1000000",
                   "--batch-size", "16", "--eval-every", "0", "--checkpoint-every", "0", "--run-dir", f"{folder}/run"]
        environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as job:
            try:
                measure(options, job, folder, alone, read)
            finally:
                job.send_signal(signal.SIGTERM)
                job.stderr.read()


def measure(options, job, folder, alone, read):
    deadline = time.monotonic() + 60
    control = None
    while control is None or '"slowest_rank"' not in ask(control, "/status"):
        found = list(pathlib.Path(folder, "dtrain").glob("launch-*.sock")) if os.path.isdir(f"{folder}/dtrain") else []
        control = str(found[0]) if found else None
        if time.monotonic() > deadline or job.poll() is not None:
            sys.exit("status.py: the job does not train: " + job.stderr.read().decode()[-2000:])
        time.sleep(0.2)
    rates = [(steps_per_second(control, options.seconds, 0), steps_per_second(control, options.seconds, 0.1))
             for _ in range(3)]
    quiet, asked = (sorted(rate)[1] for rate in zip(*rates))
    costs = {}
    for what in ("/status", "/metrics"):
        before = cpu_seconds(job.pid)
        for _ in range(options.requests):
            ask(control, what)
        costs[what] = (cpu_seconds(job.pid) - before) / options.requests
    step = 1 / quiet
    worker = read * 1e-9 / step
    launcher = max(costs.values()) / options.every
    print(f"a step                      {step * 1e6:10.1f} us ({quiet:.0f} a second; {asked:.0f} while asked 10 times a "
          "second)")
    print(f"a worker's word for a step  {alone:10.1f} ns, {read:.1f} ns beside a reader that never rests: "
          f"{100 * worker:.4f} % of a step")
    for what, cost in costs.items():
        print(f"an answer to {what:<14} {cost * 1e6:10.1f} us of the launcher's CPU time")
    print(f"asked each {options.every:g} s             {100 * launcher:10.4f} % of a core")
    if max(worker, launcher) >= LIMIT:
        sys.exit(f"status.py: expected less than {100 * LIMIT:g} % of a step")


if __name__ == "__main__":
    main()
