#!/usr/bin/env bash
# A sweep of 12 LeNet runs (4 learning rates, 3 momenta) beside the same 12 in PyTorch, a process each: two at a time, each on
# a core of its own with one thread; the same steps, batches and evaluation. Then the sweep is killed with -9 in the middle
# and started again: no run may be lost or done twice, and the weights must be those of the sweep that was left alone.
#
#   DTRAIN_PEER_PYTHON=/path/to/python bash tests/bench/sweep.sh [steps]     # a Python that has torch and numpy
#
# DTRAIN_BIN       where dtrain is (default build/release/bin)
# DTRAIN_DATA_DIR  Fashion-MNIST's files (default: where Debian's package puts them)
set -euo pipefail
steps=${1:-100}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
data=${DTRAIN_DATA_DIR:-/usr/share/datasets/fashion-mnist}
python=${DTRAIN_PEER_PYTHON:-python3}
rates=(0.01 0.02 0.05 0.1) momenta=(0 0.5 0.9)
[ -x "$bin/dtrain" ] || { echo "sweep.sh: expected $bin/dtrain; build it or set DTRAIN_BIN" >&2; exit 2; }
"$python" -c 'import numpy, torch' || { echo "sweep.sh: $python has no torch and numpy; set DTRAIN_PEER_PYTHON" >&2; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

join() { local IFS=,; echo "$*"; }
cat >"$work/lenet.json" <<EOF
{"options": {"model": "lenet", "dataset": "fashion-mnist", "data-dir": "$data", "device": "cpu", "batch-size": 256,
             "max-steps": $steps, "checkpoint-every": 50, "lr": [$(join "${rates[@]}")], "momentum": [$(join "${momenta[@]}")]}}
EOF

sweep() { "$bin/dtrain" sweep "$work/lenet.json" --jobs 2 --sweep-dir "$work/$1"; }
seconds_since() { echo "$1 $EPOCHREALTIME" | awk '{ printf "%.2f", $2 - $1 }'; }

begin=$EPOCHREALTIME
sweep whole
ours=$(seconds_since "$begin")

# one SLOT LR MOMENTUM: one run in PyTorch, on a core of its own.
one() {
  taskset -c "$(cut -d' ' -f$(($1 + 1)) <<<"$CORES")" "$PEER" "$HERE/peer/train_one.py" --data-dir "$DATA" --batch-size 256 \
    --max-steps "$STEPS" --lr "$2" --momentum "$3" --run-dir "$WORK/peer/lr=$2,momentum=$3"
}
export -f one
CORES=$("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
export CORES PEER=$python HERE=$here DATA=$data STEPS=$steps WORK=$work

begin=$EPOCHREALTIME
for lr in "${rates[@]}"; do
  for momentum in "${momenta[@]}"; do echo "$lr $momentum"; done
done | xargs -P 2 -L 1 --process-slot-var=SLOT bash -c 'one "$SLOT" "$@"' _
peer=$(seconds_since "$begin")
count=$(find "$work/peer" -name summary.json | wc -l)
[ "$count" -eq 12 ] || { echo "sweep.sh: expected 12 runs in PyTorch, got $count" >&2; exit 1; }

echo
echo "12 LeNet runs of $steps steps, 2 at a time, a core each (load before: $(cut -d' ' -f1 /proc/loadavg)):"
printf '  %-22s %7s s\n' 'dtrain sweep' "$ours" 'PyTorch, a process each' "$peer"
awk -v a="$peer" -v b="$ours" 'BEGIN { printf "  ratio                  %7.2f\n", a / b }'

# Killed in the middle.
setsid "$bin/dtrain" sweep "$work/lenet.json" --jobs 2 --sweep-dir "$work/killed" 2>"$work/killed.log" &
sweep=$!
sleep "$(awk -v s="$ours" 'BEGIN { print s * 0.55 }')"
kill -9 "$sweep"
wait "$sweep" 2>/dev/null || true
before=$(find "$work/killed/ends" -name '*.json' | sort | xargs -r stat -c '%n %i' )
sweep killed >/dev/null 2>"$work/again.log"
echo "killed with -9 after $(grep -c . <<<"$before") of 12 runs, and started again: $(head -1 "$work/again.log")"
after=$(find "$work/killed/ends" -name '*.json' | sort | xargs stat -c '%n %i')
[ "$(wc -l <<<"$after")" -eq 12 ] || { echo "sweep.sh: expected 12 ends, got: $after" >&2; exit 1; }
[ -z "$before" ] || [ -z "$(comm -23 <(sort <<<"$before") <(sort <<<"$after"))" ] || { echo "sweep.sh: a run was done twice" >&2; exit 1; }
for run in "$work"/whole/runs/*; do
  name=$(basename "$run")
  cmp "$(find "$run/checkpoints" -name model.safetensors | sort | tail -1)" \
    "$(find "$work/killed/runs/$name/checkpoints" -name model.safetensors | sort | tail -1)"
done
echo "every run's weights are those of the sweep that was left alone, bit for bit"
