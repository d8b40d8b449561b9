#!/usr/bin/env bash
# A run that an earlier package began is resumed by a later one: in a bare root, a job of two workers is stopped by SIGTERM,
# the later package is installed over the earlier one, and the same command finishes it. Its losses and weights must be those
# of a run that the later package made alone. Needs root and both packages, so it is run by hand.
#
# usage: bash tests/consumer/upgrade.sh EARLIER.deb LATER.deb
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
[ $# -eq 2 ] || die "usage: upgrade.sh EARLIER.deb LATER.deb"
earlier=$(realpath "$1") later=$(realpath "$2")
own_namespaces "${BASH_SOURCE[0]}" "$earlier" "$later"
own_folder "" dtrain-upgrade
make_bare_root "$dir" '' '' ca-certificates
mount_kernel_folders
in_root apt-get -qq update

steps=600
install() {
  cp "$1" "$root/root/"
  in_root env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends --reinstall --allow-downgrades \
    "/root/${1##*/}" >"$dir/apt" 2>&1 || { cat "$dir/apt"; die "apt install of $1 failed"; }
  say "installed $(in_root dtrain --version), package $(in_root dpkg-query -W -f '${Version}' dtrain)"
}
# train RUN: the same command each time. Momentum, a schedule and dropout: all that a checkpoint has to keep.
train() {
  in_root dtrain-launch --nproc_per_node=2 dtrain train --model lenet --dataset synthetic:1x28x28,10,4096 --batch-size 16 \
    --optimizer adamw --lr 0.001 --lr-schedule cosine --max-steps "$steps" --checkpoint-every 50 --seed 5 \
    --log-every 1 --run-dir "/root/$1" >"$dir/$1.out" 2>&1
}
steps_of() {
  local count
  count=$(grep -c '"event": *"step"' "$root/root/$1/metrics.jsonl" 2>/dev/null || true)
  echo "${count:-0}"
}

install "$earlier"
train upgraded &
job=$!
# The launcher is the child of chroot's process; the job ends by itself if it is never seen.
while [ "$(steps_of upgraded)" -lt 12 ]; do
  kill -0 "$job" 2>/dev/null || { cat "$dir/upgraded.out"; die "the job ended before it was stopped"; }
  sleep 0.05
done
# The root's /proc has the numbers of this process namespace; the launcher is older than the processes it forks.
launcher=$(grep -la '^dtrain-launch' "$root"/proc/[0-9]*/cmdline 2>/dev/null | grep -oE '[0-9]+/cmdline' | sort -n | head -n 1 || true)
launcher=${launcher%/cmdline}
[ -n "$launcher" ] || die "the launcher was not found"
kill -TERM "$launcher"
wait "$job" || true
stopped=$(steps_of upgraded)
say "stopped after step $stopped: $(tail -n 1 "$dir/upgraded.out")"
[ "$stopped" -lt "$steps" ] || die "the job was done before it was stopped: use more steps"

install "$later"
train upgraded || { cat "$dir/upgraded.out"; die "the later package did not resume the run"; }
grep -E 'resum' "$dir/upgraded.out" || { cat "$dir/upgraded.out"; die "expected it to say that it resumed"; }
train alone || { cat "$dir/alone.out"; die "the run of the later package alone failed"; }

python3 - "$root/root/upgraded" "$root/root/alone" "$steps" <<'PYTHON'
import array, glob, json, struct, sys
def weights(run):
    files = [f for f in glob.glob(run + "/checkpoints/**/*.safetensors", recursive=True)]
    newest = max(files, key=lambda f: [int(part) for part in __import__("re").findall(r"\d+", f[len(run):])])
    data = open(newest, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return {name: array.array("f", data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}
def losses(run):
    lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    return {line["step"]: line["loss"] for line in lines if line.get("event") == "step"}
first, second, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
a, b = weights(first), weights(second)
assert a.keys() == b.keys() and a, (a.keys() ^ b.keys())
worst = max(abs(x - y) for name in a for x, y in zip(a[name], b[name]))
same = all(a[name].tobytes() == b[name].tobytes() for name in a)
la, lb = losses(first), losses(second)
assert sorted(la) == sorted(lb) == list(range(1, steps + 1)), "expected each step once in both runs"
loss = max(abs(la[step] - lb[step]) for step in la)
print(f"{len(a)} tensors, greatest difference {worst:g}{', the same bits' if same else ''}; losses of {steps} steps: {loss:g}")
assert worst <= 1e-6 and loss <= 1e-5, "another version may differ by rounding alone"
PYTHON
say "upgrade.sh: all good"
