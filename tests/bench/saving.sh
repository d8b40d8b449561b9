#!/usr/bin/env bash
# What saving costs a step: `dtrain train` with checkpoints, two workers of one thread on the CPU. The steps between two
# checkpoints are halved: a checkpoint is written beside the first half, nothing is beside the second one. Both are of
# one run, seconds apart, because runs differ by more than saving costs. Of each pair of halves the time of a step in
# them, and how much longer the steps between two checkpoints take than without saving, beyond the time that rank 0 copies
# for; then the medians. A write must be over within half of --every (a fast disk; otherwise take more steps).
#
#   bash tests/bench/saving.sh [--model resnet18] [--every 20] [--batch 64] [--pairs 10]
#   --every: steps between checkpoints, even; --batch is that of all workers. DTRAIN_BIN: where dtrain-launch is (default
#   build/release/bin). TMPDIR: the disk to write to.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=resnet18 every=20 batch=64 pairs=10
while [ $# -gt 0 ]; do
  case $1 in
    --model | --every | --batch | --pairs)
      [ $# -ge 2 ] || { echo "saving.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    *) echo "saving.sh: expected --model, --every, --batch or --pairs, got '$1'" >&2; exit 2 ;;
  esac
done
[ -x "$bin/dtrain-launch" ] || { echo "saving.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }
if [ "$every" -lt 2 ] || [ $((every % 2)) = 1 ]; then echo "saving.sh: expected --every to be even, got $every" >&2; exit 2; fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
half=$((every / 2))
OMP_NUM_THREADS=1 "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model "$model" --device cpu \
  --global-batch-size "$batch" --max-steps $((every * (pairs + 1))) --log-every "$half" --eval-every 0 \
  --checkpoint-every "$every" --resume never --run-dir "$folder/run" >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; exit 1; }
# Milliseconds a step that rank 0 copied for, on average over the run.
copying=$(sed -nE 's/^ *"checkpoint": ([0-9.e-]+),?$/\1/p' "$folder/run/summary.json")
[ -n "$copying" ] || { echo "saving.sh: expected the phases of a step in summary.json" >&2; exit 1; }

printf '%s, global batch %s, 2 workers, a checkpoint every %s steps, copied in %s ms: milliseconds a step\n' \
  "$model" "$batch" "$every" "$(awk -v c="$copying" -v n="$every" 'BEGIN { printf "%.2f", c * n }')"
printf '%6s%16s%16s%16s\n' pair 'beside a write' 'beside none' 'beyond, %'
sed -nE 's/^\{"event":"step","step":([0-9]+),.*"time":([0-9.]+).*/\1 \2/p' "$folder/run/metrics.jsonl" |
  awk -v every="$every" -v half="$half" -v copying="$copying" '
    $1 % half == 0 { time[$1] = $2 }
    END {
      for (at = every; (at + every) in time; at += every) {
        beside = 1e3 * (time[at + half] - time[at]) / half
        alone = 1e3 * (time[at + every] - time[at + half]) / half
        printf "%6d%16.3f%16.3f%16.2f\n", ++pair, beside, alone, 100 * ((beside - alone) / 2 - copying) / alone
      }
    }' | tee "$folder/rows"
median() { awk -v i="$1" '{ print $i }' "$folder/rows" | sort -n | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }
printf '%6s%16.3f%16.3f%16.2f\n' median "$(median 2)" "$(median 3)" "$(median 4)"
