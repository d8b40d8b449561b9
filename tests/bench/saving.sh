#!/usr/bin/env bash
# What saving costs a step: `dtrain train` with checkpoints and without in turns, two workers of one thread on the CPU. Of
# each pair of runs the time of a step without checkpoints, with them, the part of it that rank 0 copies for, and how much
# slower a step is beyond that copy; then the medians.
#
#   bash tests/bench/saving.sh [--model resnet18] [--every 20] [--batch 64] [--rounds 5] [--steps 60]
#   --every: steps between checkpoints; --batch is that of all workers. DTRAIN_BIN: where dtrain-launch is (default
#   build/release/bin). TMPDIR: the disk to write to.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=resnet18 every=20 batch=64 rounds=5 steps=60
while [ $# -gt 0 ]; do
  case $1 in
    --model | --every | --batch | --rounds | --steps)
      [ $# -ge 2 ] || { echo "saving.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    *) echo "saving.sh: expected --model, --every, --batch, --rounds or --steps, got '$1'" >&2; exit 2 ;;
  esac
done
[ -x "$bin/dtrain-launch" ] || { echo "saving.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }
[ $((steps / every)) -ge 2 ] || { echo "saving.sh: expected --steps of at least twice --every, got $steps and $every" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# train EVERY: milliseconds a step from step 10 to the last, and those of them that rank 0 spent on copying.
train() {
  rm -rf "$folder/run"
  OMP_NUM_THREADS=1 "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model "$model" --device cpu \
    --global-batch-size "$batch" --max-steps "$steps" --log-every 10 --eval-every 0 --checkpoint-every "$1" --resume never \
    --run-dir "$folder/run" >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; return 1; }
  sed -nE 's/^\{"event":"step","step":([0-9]+),.*"time":([0-9.]+).*/\1 \2/p' "$folder/run/metrics.jsonl" |
    awk 'NR == 1 { step = $1; time = $2 } END { if ($1 > step) printf "%.4f ", 1e3 * ($2 - time) / ($1 - step) }'
  sed -nE 's/^ *"checkpoint": ([0-9.e-]+),?$/\1/p' "$folder/run/summary.json"
}
median() { sort -n | awk '{ value[NR] = $1 } END { printf "%.4g", NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }

printf '%s, global batch %s, 2 workers, a checkpoint every %s steps: milliseconds a step\n' "$model" "$batch" "$every"
printf '%6s%12s%12s%12s%16s\n' round without with copying 'beyond, %'
for ((round = 1; round <= rounds; ++round)); do
  # The order alternates: a machine grows slower or faster meanwhile.
  if ((round % 2)); then read -r without _ < <(train 0); fi
  read -r with copying < <(train "$every")
  if ((round % 2 == 0)); then read -r without _ < <(train 0); fi
  [ -n "${without:-}" ] && [ -n "${copying:-}" ] || { echo "saving.sh: expected steps 10 and later in metrics.jsonl and phases in summary.json" >&2; exit 1; }
  awk -v round="$round" -v a="$without" -v b="$with" -v c="$copying" \
    'BEGIN { printf "%6d%12.3f%12.3f%12.3f%16.2f\n", round, a, b, c, 100 * ((b - c) / a - 1) }' | tee -a "$folder/rows"
done
printf '%6s%12s%12s%12s%16s\n' median "$(awk '{ print $2 }' "$folder/rows" | median)" "$(awk '{ print $3 }' "$folder/rows" | median)" \
  "$(awk '{ print $4 }' "$folder/rows" | median)" "$(awk '{ print $5 }' "$folder/rows" | median)"
