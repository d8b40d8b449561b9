"""What strangers on the launchers' port cost a training job: two launchers with a worker each train LeNet, while the
rendezvous is attacked (idle connections, garbage, impossible lengths, wrong proofs) in every other phase. Prints steps
per second of quiet and attacked phases, in pairs, and their median ratio. The attackers run at nice 19.

Run: python3 hostile_training.py [--bin DIR] [--pairs N] [--seconds S]
"""
import argparse, json, multiprocessing, os, pathlib, random, socket, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
root = pathlib.Path(__file__).resolve().parents[3]
parser.add_argument("--bin", default=str(root / "build/release/bin"))
parser.add_argument("--pairs", type=int, default=4)
parser.add_argument("--seconds", type=float, default=6)
parser.add_argument("--idle", type=int, default=5000)
parser.add_argument("--rate", type=int, default=800, help="other strangers a second")
options = parser.parse_args()


def free_port():
    """A port that is free like the one after it, below those the kernel hands out: strangers' connections take thousands of them."""
    while True:
        port = random.randrange(20000, 32000, 2)
        try:
            for candidate in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", candidate))
            return port
        except OSError:
            continue


def stranger(random_bytes):
    kinds = (random_bytes.randbytes(64), b"\xff" * 8 + b"\x7f" * 64, b"GET / HTTP/1.0\r\n\r\n",
             b"\x60\x00DTST\x02\x00" + random_bytes.randbytes(90))
    return random_bytes.choice(kinds)


def attack(address, active, counts):
    os.nice(19)
    dice, idle = random.Random(1), []
    while True:
        if not active.is_set():
            for connection in idle:
                connection.close()
            idle.clear()
            active.wait()
        begin = time.monotonic()
        for _ in range(options.rate // 10):
            try:
                with socket.create_connection(address, 1) as connection:
                    connection.sendall(stranger(dice))
                    counts[1] += 1
            except OSError:
                pass
        while len(idle) < options.idle and time.monotonic() - begin < 0.1:
            try:
                idle.append(socket.create_connection(address, 1))
                counts[0] += 1
            except OSError:
                break
        time.sleep(max(0.0, 0.1 - (time.monotonic() - begin)))


def steps_between(metrics, begin, end):
    times = [json.loads(line)["time"] for line in open(metrics) if line.endswith("}\n") and '"step"' in line]
    return sum(begin <= t < end for t in times) * 10 / (end - begin)


def main():
    folder = tempfile.TemporaryDirectory()
    run, port = pathlib.Path(folder.name) / "run", free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DTRAIN_TOKEN": os.urandom(32).hex()}
    launchers = [subprocess.Popen(
        [f"{options.bin}/dtrain-launch", "--nnodes=2", f"--node_rank={rank}", "--master_addr=127.0.0.1", f"--master_port={port}",
         "--nproc_per_node=1", "dtrain", "train", "--model=lenet", "--dataset=fashion-mnist", "--epochs=100000", "--log-every=10",
         "--eval-every=0", "--checkpoint-every=0", "--global-batch-size=64", "--lr=0.01", f"--run-dir={run}"],
        env=environment, stdout=subprocess.DEVNULL) for rank in range(2)]
    active, counts = multiprocessing.Event(), multiprocessing.Array("i", 2)
    attacker = multiprocessing.Process(target=attack, args=(("127.0.0.1", port + 1), active, counts), daemon=True)
    attacker.start()
    try:
        time.sleep(3)
        phases = []
        for _ in range(2 * options.pairs):
            begin = time.time()
            time.sleep(options.seconds)
            phases.append((begin, time.time()))
            active.clear() if active.is_set() else active.set()
            time.sleep(0.5)
        alive = all(launcher.poll() is None for launcher in launchers)
    finally:
        attacker.terminate()
        for launcher in launchers:
            launcher.terminate()
        codes = [launcher.wait(60) for launcher in launchers]
    rates = [steps_between(run / "metrics.jsonl", *phase) for phase in phases]
    pairs = list(zip(rates[0::2], rates[1::2]))
    print("steps/s quiet, attacked:", " ".join(f"{a:.0f}/{b:.0f}" for a, b in pairs))
    loss = 1 - statistics.median(b / a for a, b in pairs)
    print(f"{counts[0]} idle connections, {counts[1]} other strangers; job alive: {alive}, exit codes {codes}; "
          f"median loss {100 * loss:.1f} % (aim 5 %)")
    return 0 if alive and codes == [75, 75] else 1


if __name__ == "__main__":
    sys.exit(main())
