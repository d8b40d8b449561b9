"""Jobs of beside_torchrun.py: a launcher in a file, on a pty, under script, in a pid namespace or under a seccomp filter,
and everything it has started, found by a mark in the environment."""
import ctypes
import os
import pty
import shlex
import shutil
import signal
import subprocess
import threading
import time
import uuid

MARK = "BESIDE_TORCHRUN"
PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434


def until(condition, seconds):
    """Whether `condition` came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def write(job, name, text):
    with open(os.path.join(job.folder, name), "w", encoding="ascii") as file:
        file.write(text)


class DtrainLauncher:
    has_hang_report = True

    def __init__(self, name, folder):
        self.name, self.path = name, os.path.join(os.path.abspath(folder), "dtrain-launch")

    def command(self, workers, program, options):
        return [self.path, f"--nproc-per-node={workers}", "--no-python",
                *(f"--{name}={value}" for name, value in options.items()), *program]

    def is_it(self, arguments):
        return arguments[0] == self.path


class Torchrun:
    has_hang_report = False

    def __init__(self, python):
        self.python, self.name = python, "torchrun"

    def command(self, workers, program, _):
        return [self.python, "-m", "torch.distributed.run", f"--nproc-per-node={workers}", "--no-python", *program]

    def is_it(self, arguments):
        return arguments[0] == self.python and "torch.distributed.run" in arguments


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]


def refuse_pidfds():
    """In a child: EPERM for the calls of pidfds, as containers with an old filter answer them."""
    load, equal, give, allow, eperm = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
    rules = (Filter * 5)(Filter(load, 0, 0, 0), Filter(equal, 2, 0, PIDFD_OPEN), Filter(equal, 1, 0, PIDFD_SEND_SIGNAL),
                         Filter(give, 0, 0, allow), Filter(give, 0, 0, eperm))
    program = Program(len(rules), rules)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):  # no new privileges, the filter
        raise OSError(ctypes.get_errno(), "prctl")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class Job:
    """One launcher with its workers; ends all of them when the block is left."""

    def __init__(self, launcher, where, folder):
        self.launcher, self.where, self.folder, self.mark = launcher, where, folder, uuid.uuid4().hex
        self.log, self.child, self.code, self.terminal = os.path.join(folder, "output"), None, None, None
        self.typed_at = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(40):
            left = [pid for pid, state in self.marked() if state != "Z"]
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
        self.wait(5)
        if self.terminal is not None:
            os.close(self.terminal)

    def refusal(self):
        """Why this place cannot be had here; empty where it can."""
        if self.where == "script" and not shutil.which("script"):
            return "no script"
        if self.where in ("pid namespace", "other /proc") and os.geteuid() != 0:
            return "needs root"
        return ""

    def start(self, workers, program, options=None):
        command = self.launcher.command(workers, program, options or {})
        if self.where == "script":
            command = ["script", "-qefc", shlex.join(command), os.path.join(self.folder, "typescript")]
        elif self.where == "pid namespace":
            command = ["unshare", "-pf", "--mount-proc", *command]
        elif self.where == "other /proc":  # a first process that stays, and /proc of the namespace outside
            command = ["unshare", "-pf", "sh", "-c", shlex.join(command) + "; code=$?; sleep 17; exit $code"]
        environment = {**os.environ, MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONUNBUFFERED", None)
        if self.where in ("pty", "script"):
            self.on_terminal(command, environment)
        else:
            with open(self.log, "wb") as log:
                self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                              preexec_fn=refuse_pidfds if self.where == "seccomp" else None)

    def on_terminal(self, command, environment):
        """The command leads a session whose terminal is ours to type on."""
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, environment)
        self.child = pid
        threading.Thread(target=self.copy_output, daemon=True).start()

    def copy_output(self):
        with open(self.log, "ab", buffering=0) as log:
            while True:
                try:
                    data = os.read(self.terminal, 65536)
                except OSError:
                    return
                if not data:
                    return
                log.write(data)

    def output(self):
        return read(self.log)

    def type(self, keys):
        self.asked()
        os.write(self.terminal, keys)

    def marked(self):
        """(pid, state) of all processes of this job, zombies that still show their environment left out by it."""
        found = []
        wanted = f"{MARK}={self.mark}".encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and wanted in read(f"/proc/{name}/environ").split(b"\0"):
                stat = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if stat:
                    found.append((int(name), stat[0].decode()))
        return found

    def arguments(self, pid):
        return [part.decode() for part in read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]] or [""]

    def workers(self):
        """(pid, state) of the Python programs of this job's folder."""
        return [(pid, state) for pid, state in self.marked()
                if any(a.startswith(self.folder) and a.endswith(".py") for a in self.arguments(pid)[1:2])]

    def pids_of(self, name):
        return [pid for pid, _ in self.workers() if self.arguments(pid)[1].endswith(name)]

    def pid(self):
        """The launcher's: the first of those that look like it."""
        return min((pid for pid, _ in self.marked() if self.launcher.is_it(self.arguments(pid))), default=None)

    def state(self):
        return dict(self.marked()).get(self.pid(), "gone")

    def asked(self):
        self.typed_at = time.monotonic()

    def since(self):
        return time.monotonic() - self.typed_at

    def signal(self, number):
        self.asked()
        pid = self.pid()
        if pid is not None:
            os.kill(pid, number)

    def ended(self):
        if self.code is None and self.child is not None:
            if isinstance(self.child, int):
                pid, status = os.waitpid(self.child, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
            else:
                self.code = self.child.poll()
        return self.code is not None

    def wait(self, seconds):
        """The exit code; None where it does not come in time."""
        until(self.ended, seconds)
        return self.code
