"""How the two programs are started, watched and read. Both are handled the same way: a command that writes
metrics.jsonl into a run directory, with the wall-clock time of each logged step."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKERS = 2
FAILED_AFTER_SECONDS = 600


@dataclass
class Program:
    """A name for the table and a function (batch, steps, log_every, seed, run_dir) -> command."""

    name: str
    command: object
    extra: list = field(default_factory=list)
    attempts: int = 1  # how often a run that fails is made


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pytorch(name, data_dir, extra, model="lenet", precision="fp32", lr="0.05"):
    def command(batch, steps, log_every, seed, run_dir):
        return [str(Path(sys.executable).parent / "torchrun"), f"--nproc_per_node={WORKERS}",
                f"--master_port={free_port()}", str(HERE / "train_ddp.py"), "--data-dir", data_dir, "--model", model, "--precision", precision,
                "--global-batch-size", str(batch), "--max-steps", str(steps), "--log-every", str(log_every),
                "--seed", str(seed), "--run-dir", run_dir, "--lr", lr]
    # Its workers abort at their end now and then, all work done ("terminate called without an active exception").
    return Program(name, command, extra, attempts=3)


def dtrain(data_dir, extra, model="lenet", precision="fp32", lr="0.05"):
    def command(batch, steps, log_every, seed, run_dir):
        epochs = steps * batch // 60000 + 1
        return [str(Path(os.environ["DTRAIN_BIN"]) / "dtrain-launch"), f"--nproc_per_node={WORKERS}", "dtrain", "train",
                "--model", model, "--precision", precision, "--dataset", "fashion-mnist", "--data-dir", data_dir, "--device", "cpu",
                "--global-batch-size", str(batch), "--epochs", str(epochs), "--max-steps", str(steps),
                "--log-every", str(log_every), "--seed", str(seed), "--run-dir", run_dir, "--lr", lr,
                "--eval-every", "0", "--checkpoint-every", "0", "--resume", "never"]
    return Program("dtrain", command, extra)


@dataclass
class Run:
    """One finished run: when it was started and ended (unix seconds), its logged steps, its workers' memory in MiB."""

    started: float
    ended: float
    steps: list
    run_dir: Path
    memory: dict

    def first_step_seconds(self):
        return self.steps[0]["time"] - self.started

    def images_per_second(self, batch, warmup):
        timed = [s for s in self.steps if s["step"] >= warmup]
        first, last = timed[0], timed[-1]
        return batch * (last["step"] - first["step"]) / (last["time"] - first["time"])

    def loss_at(self, step):
        return next(s["loss"] for s in self.steps if s["step"] == step)

    def summary(self):
        path = self.run_dir / "summary.json"
        return json.loads(path.read_text()) if path.exists() else {}


def children_of(pid):
    """All descendants of a process, from /proc."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
                parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
            except (OSError, IndexError):
                pass
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def is_worker(pid):
    try:
        return any(v.startswith(b"RANK=") for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return False


def memory_of(pid):
    """Peak and resident MiB, and the proportional share, which counts a library two workers share once."""
    values = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("VmHWM:", "VmRSS:")):
                values[{"VmHWM": "peak", "VmRSS": "resident"}[line[:5]]] = int(line.split()[1]) / 1024
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                values["proportional"] = int(line.split()[1]) / 1024
    except OSError:
        return {}
    return values if len(values) == 3 else {}


def run(program, batch, steps, log_every, seed, run_dir, watch_memory=False):
    """run_once(), again when it fails, as often as the program has attempts; each failure is told."""
    for attempt in range(1, program.attempts + 1):
        try:
            return run_once(program, batch, steps, log_every, seed, f"{run_dir}-{attempt}", watch_memory)
        except RuntimeError as error:
            if attempt == program.attempts:
                raise
            last_words = [line for line in str(error).splitlines() if "terminate" in line or "Error" in line]
            print(f"  {program.name}: a run failed and is made again: {(last_words or ['?'])[0].strip()}", flush=True)


def run_once(program, batch, steps, log_every, seed, run_dir, watch_memory=False):
    """Starts the program, waits for it, reads what it wrote. With `watch_memory` the workers are sampled five times a
    second, so such a run is not timed. Raises RuntimeError with the end of its output when it fails."""
    command = program.command(batch, steps, log_every, seed, str(run_dir)) + program.extra
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    output_path = Path(f"{run_dir}.out")
    output_path.parent.mkdir(parents=True, exist_ok=True)
    samples = {}
    with open(output_path, "wb") as output:
        started = time.time()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                                   start_new_session=True)
        try:
            while watch_memory and process.poll() is None:
                for pid in filter(is_worker, children_of(process.pid)):
                    samples[pid] = memory_of(pid) or samples.get(pid, {})
                if time.time() > started + FAILED_AFTER_SECONDS:
                    break
                time.sleep(0.2)
            process.wait(timeout=max(1, started + FAILED_AFTER_SECONDS - time.time()))
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        ended = time.time()
    if process.returncode != 0:
        tail = output_path.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{' '.join(command)}\nended with code {process.returncode}; its last output:\n{tail}")
    lines = [json.loads(line) for line in open(Path(run_dir) / "metrics.jsonl")]
    logged = [line for line in lines if line.get("event") == "step"]
    if not logged or "time" not in logged[0]:
        raise RuntimeError(f"{run_dir}/metrics.jsonl: expected step events with a field 'time' (unix seconds)")
    workers = [s for s in samples.values() if s]
    memory = {k: max(w[k] for w in workers) for k in workers[0]} if workers else {}
    return Run(started, ended, logged, Path(run_dir), memory)
