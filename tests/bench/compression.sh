#!/usr/bin/env bash
# What compressed gradients, or another algorithm of all_reduce, save between two hosts: bytes that leave a host and
# time, a step, of `dtrain train` on two hosts (network namespaces) with two workers each, joined by a link of a given
# speed. Ways take turns; medians. Root.
#
#   bash tests/bench/compression.sh [--rate 1gbit] [--rounds 3] [WAY...]      default: none fp16 powersgd:4
#   WAY is what --compress takes, or OPTION=VALUE of dtrain train: allreduce=direct. What follows -- is given to
#   dtrain train (default: ResNet-18, 8 images of 28 x 28 a worker).
#   DTRAIN_BIN: where dtrain-launch and dtrain are (default build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
rate=1gbit rounds=3 ways=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --rate | --rounds)
      [ $# -ge 2 ] || { echo "compression.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    --*) echo "compression.sh: expected --rate, --rounds, a way or --, got '$1'" >&2; exit 2 ;;
    *) ways+=("$1") && shift ;;
  esac
done
[ $# -eq 0 ] || shift
[ ${#ways[@]} -gt 0 ] || ways=(none fp16 powersgd:4)
[ $# -gt 0 ] || set -- --model resnet18 --dataset synthetic:1x28x28,10,2000 --global-batch-size 32
[ -x "$bin/dtrain-launch" ] || { echo "compression.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }

export DTRAIN_NETNS_LAB=cmp$(($$ % 10000)) DTRAIN_LAB_OWNER=$$
lab() { bash "$root/cluster/lab/netns.sh" "$@"; }
lab start 2 >/dev/null
folder=$(mktemp -d)
trap 'lab stop >/dev/null; rm -rf "$folder"' EXIT
for i in 0 1; do lab limit "h$i" "$rate" >/dev/null; done
DTRAIN_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export DTRAIN_TOKEN OMP_NUM_THREADS=1

# PowerSGD sends the first ten steps whole.
first=14 last=26

# node NUMBER RUN WAY [OPTION...]
node() {
  local number=$1 run=$2 way=$3
  shift 3
  [[ $way == *=* ]] || way=compress=$way
  lab exec "h$number" taskset -c "$number" "$bin/dtrain-launch" --nnodes=2 --node_rank="$number" --nproc_per_node=2 \
    --master_addr="$(lab address h0)" --master_port=29500 dtrain train --device cpu "--$way" --max-steps "$last" \
    --log-every 1 --checkpoint-every 0 --eval-every 0 --resume never --run-dir "$run" "$@" >"$run.$number.log" 2>&1
}
sent() { lab exec h0 awk '/eth0:/ { print $10 }' /proc/net/dev; }

# measure RUN WAY [OPTION...]: milliseconds and megabytes a step, of those after the first ones.
measure() {
  local run=$1 before after i
  node 1 "$@" &
  node 0 "$@" &
  for ((i = 0; i < 6000; ++i)); do
    [ ! -e "$run/metrics.jsonl" ] || [ "$(grep -c '"event":"step"' "$run/metrics.jsonl")" -lt "$first" ] || break
    sleep 0.02
  done
  before=$(sent)
  wait %1 %2 || { tail -5 "$run".*.log >&2; return 1; }
  after=$(sent)
  python3 - "$run/metrics.jsonl" "$first" "$((after - before))" <<'PYTHON'
import json
import statistics
import sys

path, first, sent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path) as lines:
    steps = [line for line in map(json.loads, lines) if line["event"] == "step"]
times = [after["time"] - before["time"] for before, after in zip(steps[first - 1:], steps[first:])]
print(f"{1e3 * statistics.median(times):.1f} {sent / len(times) / 1e6:.2f} {steps[-1]['loss']:.4f}")
PYTHON
}

printf '%s\n' "$*" "2 hosts x 2 workers, $rate, $rounds rounds, steps $((first + 1)) to $last"
for ((round = 0; round < rounds; ++round)); do
  for way in "${ways[@]}"; do
    found=$(measure "$folder/$round-${way//[:=]/-}" "$way" "$@")
    echo "$way $found" >>"$folder/table"
  done
done
python3 - "$folder/table" <<'PYTHON'
import statistics
import sys

found = {}
with open(sys.argv[1]) as lines:
    for way, *numbers in map(str.split, lines):
        found.setdefault(way, []).append([float(number) for number in numbers])
print(f"{'way':<24}{'step (ms)':>12}{'least':>9}{'most':>9}{'sent (MB)':>11}{'time':>8}{'bytes':>8}")
base = None
for way, rows in found.items():
    times, sent = [row[0] for row in rows], statistics.median(row[1] for row in rows)
    time = statistics.median(times)
    base = base or (time, sent)
    print(f"{way:<24}{time:>12.1f}{min(times):>9.1f}{max(times):>9.1f}{sent:>11.2f}"
          f"{time / base[0]:>8.2f}{sent / base[1]:>8.2f}")
PYTHON
