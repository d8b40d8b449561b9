#!/usr/bin/env python3
"""Runs the same jobs under dtrain-launch and under torchrun and prints a table of what each does: signals, terminals,
output, kills. Not part of ctest: it needs a Python with torch, and root for the pid namespace. Each step has a limit, and
whatever a job leaves is ended.

  DTRAIN_BIN=build/ci/bin DTRAIN_PEER_PYTHON=/path/to/python tests/launch/beside_torchrun.py [--only CASE]…
  … --also before=/path/to/another/bin      a further column
"""
import argparse
import os
import re
import signal
import sys
import tempfile

from beside_jobs import DtrainLauncher, Job, Torchrun, until, write

SAVING = """
def saving():
    name = os.environ.get("DTRAIN_SAVING_FILE")
    if name: open(name, "a").close()
"""
TRAINER = """import os, signal, sys, time
here = sys.argv[1]
def save(*_):
    saving()
    time.sleep(3)
    open(here + "/saved", "w").close()
    sys.exit(0)
""" + SAVING + """
signal.signal(signal.SIGTERM, save)
open(here + "/ready", "w").close()
while True: time.sleep(0.1)
"""
# It prints to a process without a handler.
PRINTING = TRAINER.replace("    time.sleep(3)", "    for i in range(6): print(i, flush=True), time.sleep(0.3)")
# Its helpers have no handler, as those of a DataLoader; without them there is nothing to save.
WITH_HELPERS = """import os, signal, subprocess, sys, time
here, number = sys.argv[1], getattr(signal, sys.argv[2])
helpers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) for _ in range(2)]
def save(*_):
    saving()
    time.sleep(1)
    alive = all(helper.poll() is None for helper in helpers)
    open(here + ("/saved" if alive else "/lost"), "w").close()
    for helper in helpers: helper.kill()
    sys.exit(0)
""" + SAVING + """
signal.signal(number, save)
time.sleep(0.5)
open(here + "/ready", "w").close()
while True: time.sleep(0.1)
"""
WORD = 'import getpass\nprint("got", getpass.getpass("word: "), flush=True)\n'
TICKS = """import sys, time
for i in range(600):
    print("tick", i, flush=True)
    if i == 5: open(sys.argv[1] + "/ready", "w").close()
    time.sleep(0.2)
"""
SLEEPER = """import os, sys, time
open(sys.argv[1] + "/ready" + os.environ["RANK"], "w").close()
time.sleep(200)
"""
BARS = """import os, sys, time
open(sys.argv[1] + "/ready", "w").close()
for i in range(60):
    sys.stderr.write("\\r%3d%%|%s" % (i, "#" * i))
    sys.stderr.flush()
    time.sleep(0.1)
"""
LAST_WORDS = """import sys
for i in range(200): sys.stderr.write("\\r%3d%%|%s" % (i, "#" * 60))
raise ValueError("last words")
"""
PRINTS = """import sys, time
for i in range(5): print("line", i)
open(sys.argv[1] + "/ready", "w").close()
time.sleep(200)
"""


def started(job, name="ready", seconds=120):
    return until(lambda: os.path.exists(os.path.join(job.folder, name)), seconds)


def exists(job, name):
    return os.path.exists(os.path.join(job.folder, name))


def ending(job, seconds):
    """How the launcher ended, once it has been asked to."""
    if not until(lambda: job.pid() is None, seconds):
        return f"does not end in {seconds} s"
    took, left = job.since(), len(job.workers())
    return f"{took:.1f} s, exit code {job.wait(20)}" + (f", {left} left" if left else "")


def below_a_shell(trainer, pipe=""):
    def case(job):
        write(job, "train.py", trainer)
        write(job, "w.sh", f'#!/bin/sh\n{sys.executable} "$1/train.py" "$1" {pipe}\necho ended\n')
        job.start(1, ["/bin/sh", os.path.join(job.folder, "w.sh"), job.folder], {"shutdown-timeout": 60})
        if not started(job):
            return "did not start"
        job.signal(signal.SIGTERM)
        end = ending(job, 60)
        until(lambda: exists(job, "saved") or not job.workers(), 10)
        return ("saved" if exists(job, "saved") else "lost") + ", " + end
    return case


def helpers(name):
    def case(job):
        write(job, "train.py", WITH_HELPERS)
        job.start(1, [sys.executable, os.path.join(job.folder, "train.py"), job.folder, name])
        if not started(job):
            return "did not start"
        job.signal(getattr(signal, name))
        until(lambda: exists(job, "saved") or exists(job, "lost") or not job.workers(), 15)
        return "saved" if exists(job, "saved") else "helpers died first" if exists(job, "lost") else "nothing saved"
    return case


def word(job):
    write(job, "ask.py", WORD)
    job.start(1, [sys.executable, os.path.join(job.folder, "ask.py")])
    if not until(lambda: b"word:" in job.output(), 90):
        return "no prompt; on Ctrl-C " + interrupted(job)
    job.type(b"secret\n")
    # getpass ends its line on stderr, which may come in between.
    if until(lambda: re.search(rb"got\s+secret", job.output()), 10):
        return "reads it"
    states = "".join(sorted({state for _, state in job.workers()}))
    return f"does not read it (workers {states}); on Ctrl-C {interrupted(job)}"


def interrupted(job):
    job.asked()
    job.type(b"\x03")
    return ending(job, 45)


def stopped(job):
    write(job, "ticks.py", TICKS)
    job.start(1, [sys.executable, os.path.join(job.folder, "ticks.py"), job.folder])
    if not started(job):
        return "did not start"
    job.type(b"\x1a")
    until(lambda: job.state() == "T", 3)
    before = job.output().count(b"tick")
    if until(lambda: job.output().count(b"tick") > before + 3, 5):
        return "continues; on Ctrl-C " + interrupted(job)
    return f"frozen (launcher {job.state()})"


def orphans(how):
    def case(job):
        write(job, "sleep.py", SLEEPER)
        job.start(2, [sys.executable, os.path.join(job.folder, "sleep.py"), job.folder])
        if not (started(job, "ready0") and started(job, "ready1", 30)):
            return "did not start: " + job.output().decode(errors="replace")[-80:].replace("\n", " ")
        job.signal(how)
        if how == signal.SIGTERM:
            return ending(job, 60)
        until(lambda: not job.workers(), 15)
        return f"{len(job.workers())} of 2 workers left after {job.since():.0f} s"
    return case


def bars(job):
    write(job, "bars.py", BARS)
    job.start(2, [sys.executable, os.path.join(job.folder, "bars.py"), job.folder])
    if not started(job):
        return "did not start"
    until(lambda: False, 4)
    during = job.output()
    job.wait(60)
    final = job.output()
    newest = max((i for i in range(60) if b"%3d%%|" % i in during), default=None)
    seen = "nothing" if newest is None else f"{newest} %"
    return f"after 4 s {seen} seen; in the end {len(final)} bytes, {final.count(bytes([13]))} \\r"


def last_words(job):
    write(job, "fail.py", LAST_WORDS)
    job.start(1, [sys.executable, os.path.join(job.folder, "fail.py")])
    code = job.wait(120)
    text = job.output()
    return f"{text.count(b'ValueError: last words')} times, {len(text)} bytes, exit code {code}"


def killed_below_a_wrapper(job):
    write(job, "prints.py", PRINTS)
    write(job, "w.sh", f'#!/bin/sh\n{sys.executable} "$1/prints.py" "$1"\necho ended\n')
    job.start(1, ["/bin/sh", os.path.join(job.folder, "w.sh"), job.folder])
    if not started(job):
        return "did not start"
    for pid in job.pids_of("prints.py"):
        os.kill(pid, signal.SIGKILL)
    job.wait(30)
    return f"{job.output().count(b'line ')} of 5 lines"


def hang(job):
    if not job.launcher.has_hang_report:
        return "no such option"
    write(job, "sleep.py", SLEEPER)
    job.start(1, [sys.executable, os.path.join(job.folder, "sleep.py"), job.folder],
              {"on-hang": "stacks", "hang-timeout": 2})
    if not started(job, "ready0"):
        return "did not start"
    found = until(lambda: b"no progress" in job.output() or b"hang" in job.output(), 60)
    until(lambda: False, 15)
    states = "".join(state for _, state in job.workers())
    lines = job.output().count(b"\n")
    return f"{'report' if found else 'no report'} of {lines} lines; worker {states or 'gone'}"


PLACES = ("file", "pty", "script", "pid namespace", "seccomp")
# (name, what, where it runs, how)
CASES = [
    *(("1", "SIGTERM, a shell script's trainer saves for 3 s", where, below_a_shell(TRAINER)) for where in PLACES),
    *(("2", "SIGTERM, the trainer prints to tee", where, below_a_shell(PRINTING, '2>&1 | tee "$1/log"'))
      for where in PLACES),
    *(("2", "SIGTERM, the trainer needs its helpers", where, helpers("SIGTERM")) for where in PLACES),
    *(("2", f"{name}, the trainer needs its helpers", where, helpers(name))
      for name in ("SIGUSR1", "SIGUSR2") for where in ("file", "pid namespace", "seccomp")),
    *(("3", "getpass", where, word) for where in ("pty", "script")),
    *(("4", "Ctrl-Z where the launcher leads the session", where, stopped) for where in ("pty", "script")),
    *(("5", "kill -9 of the launcher", where, orphans(signal.SIGKILL)) for where in (*PLACES, "other /proc")),
    *(("5", "SIGTERM", where, orphans(signal.SIGTERM)) for where in (*PLACES, "other /proc")),
    *(("6", "bars of two ranks", where, bars) for where in PLACES),
    *(("6", "a traceback behind a long bar", where, last_words) for where in PLACES),
    *(("7", "prints below a wrapper, killed with -9", where, killed_below_a_wrapper) for where in PLACES),
    *(("8", "--on-hang stacks", where, hang) for where in PLACES),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a case's number or place; repeatable")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=BIN", help="another dtrain-launch")
    options = parser.parse_args()
    # In the background of a script Ctrl-C is ignored, and so it would be by all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    launchers = []
    if "DTRAIN_BIN" in os.environ:
        launchers.append(DtrainLauncher("dtrain-launch", os.environ["DTRAIN_BIN"]))
    launchers += [DtrainLauncher(*also.split("=", 1)) for also in options.also]
    if "DTRAIN_PEER_PYTHON" in os.environ:
        launchers.append(Torchrun(os.environ["DTRAIN_PEER_PYTHON"]))
    if not launchers:
        sys.exit("beside_torchrun.py: set DTRAIN_BIN, DTRAIN_PEER_PYTHON or both")
    print("| | what | where | " + " | ".join(launcher.name for launcher in launchers) + " |")
    print("|" + "---|" * (3 + len(launchers)), flush=True)
    for number, what, where, case in CASES:
        if options.only and number not in options.only and where not in options.only:
            continue
        cells = []
        for launcher in launchers:
            with tempfile.TemporaryDirectory() as folder, Job(launcher, where, folder) as job:
                cells.append(job.refusal() or case(job))
        print(f"| {number} | {what} | {where} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
