#!/usr/bin/env bash
# How much faster training is in one precision than in another: `dtrain train` in turns, two workers of one thread on the
# CPU; each round's images/s from step 10 to the last, their medians and the ratios to the first precision.
#
#   bash tests/bench/precisions.sh [--model resnet18] [--precisions fp32,bf16] [--batch 64] [--rounds 5] [--steps 40]
#   --batch is that of all workers. DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=resnet18 precisions=fp32,bf16 batch=64 rounds=5 steps=40
while [ $# -gt 0 ]; do
  case $1 in
    --model | --precisions | --batch | --rounds | --steps)
      [ $# -ge 2 ] || { echo "precisions.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    *) echo "precisions.sh: expected --model, --precisions, --batch, --rounds or --steps, got '$1'" >&2; exit 2 ;;
  esac
done
[ -x "$bin/dtrain-launch" ] || { echo "precisions.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# images_per_second PRECISION: from the times that metrics.jsonl has of step 10 and of the last.
images_per_second() {
  rm -rf "$folder/run"
  OMP_NUM_THREADS=1 "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model "$model" --device cpu --precision "$1" \
    --global-batch-size "$batch" --max-steps "$steps" --log-every 10 --eval-every 0 --checkpoint-every 0 --resume never \
    --run-dir "$folder/run" >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; return 1; }
  sed -nE 's/^\{"event":"step","step":([0-9]+),.*"time":([0-9.]+).*/\1 \2/p' "$folder/run/metrics.jsonl" |
    awk -v batch="$batch" 'NR == 1 { step = $1; time = $2 } END { if ($1 > step) printf "%.1f", batch * ($1 - step) / ($2 - time) }'
}
median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }

IFS=, read -ra list <<<"$precisions"
printf '%s, global batch %s, 2 workers: images/s\n%6s' "$model" "$batch" round
printf '%10s' "${list[@]}"
echo
for ((round = 1; round <= rounds; ++round)); do
  printf '%6s' "$round"
  for precision in "${list[@]}"; do
    value=$(images_per_second "$precision")
    [ -n "$value" ] || { echo "precisions.sh: $precision: expected steps 10 and later in metrics.jsonl" >&2; exit 1; }
    echo "$value" >>"$folder/$precision"
    printf '%10.1f' "$value"
  done
  echo
done
printf '%6s' median
for precision in "${list[@]}"; do printf '%10.1f' "$(median "$folder/$precision")"; done
echo
for precision in "${list[@]:1}"; do
  awk -v a="$(median "$folder/${list[0]}")" -v b="$(median "$folder/$precision")" -v name="$precision / ${list[0]}" \
    'BEGIN { printf "%s: %.2f\n", name, b / a }'
done
