#!/usr/bin/env bash
# DataParallel against DDP on two CPU devices: one process with `--devices cpu:0,cpu:1` (updating on the first device, or
# on the host) and two workers, with one thread for each and the same global batch, in turns whose order rotates. The
# median step of each run after its first quarter; of each round the ratios to the two workers; medians and extremes of
# both, bytes and memory. Exits with 1 where the losses differ by more than 1e-5, or a step has none.
#
#   bash tests/bench/replicas.sh [--rounds 7] [MODEL:BATCH:STEPS…]
#   BATCH: of both together; mlp:256:200 lenet:256:80 resnet18:64:12 if none is given. DTRAIN_BIN: where dtrain-launch
#   is (default build/release/bin).
set -euo pipefail
# shellcheck source=tests/bench/turns.sh
source "$(dirname "${BASH_SOURCE[0]}")/turns.sh"

rounds=7
if [ "${1-}" = --rounds ]; then rounds=${2:?--rounds expects a number}; shift 2; fi
[ $# -gt 0 ] || set -- mlp:256:200 lenet:256:80 resnet18:64:12
check_jobs "$@"
ways=(workers devices host)
options_of() {
  case $1 in
    workers) echo --device cpu ;;
    devices) echo --devices cpu:0,cpu:1 ;;
    host) echo --devices cpu:0,cpu:1 --update-on host ;;
  esac
}
# from_log WAY PATTERN: what the parentheses of PATTERN hold in the last run's account.
from_log() { sed -nE "s/.*$2.*/\1/p" "$folder/$1.log" | tail -1 | grep . || refuse "$1: expected '$2' in its account"; }

row() { printf '%-9s %-8s %-30s %-20s %-22s %-14s %s\n' "$@"; }

# compare MODEL BATCH STEPS: all rounds; prints a row for each way.
compare() {
  local model=$1 batch=$2 steps=$3 round turn way process
  for ((round = 0; round < rounds; ++round)); do
    for turn in 0 1 2; do
      way=${ways[(round + turn) % 3]}
      process=1 && [ "$way" != workers ] || process=2
      # shellcheck disable=SC2046
      train "$way" "$process" --model "$model" --global-batch-size "$batch" --max-steps "$steps" $(options_of "$way")
      step_ms "$way" $((steps / 4)) >"$folder/now-$way"
      cat "$folder/now-$way" >>"$folder/$model-$way"
    done
    for way in devices host; do
      worst=$(difference workers "$way" "$steps")
      awk -v d="$worst" 'BEGIN { exit !(d "" ~ /^[0-9.e+-]+$/ && d + 0 <= 1e-5) }' ||
        { echo "replicas.sh: $model, $way: expected the losses of two workers to 1e-5, got $worst" >&2; exit 1; }
      paste "$folder/now-$way" "$folder/now-workers" | awk '{ print $1 / $2 }' >>"$folder/$model-$way-ratio"
    done
  done

  local moved same memory
  for way in "${ways[@]}"; do
    same=same && cmp -s "$(weights workers)" "$(weights "$way")" || same="within rounding"
    if [ "$way" = workers ]; then
      # 2 (W - 1) / W · 4 P, which for two workers is what goes to one replica.
      moved="$(from_log devices 'in a step: ([0-9.]+) MiB of parameters') each"
      memory=$(sed -nE 's/^ *"peak_allocated_bytes": ([0-9]+),?$/\1/p' "$folder/workers/summary.json" |
        awk '{ printf "%.1f each", $1 / 2^20 }')
    else
      moved=$(from_log "$way" 'in a step: (.*)' | sed -E 's/ MiB of parameters| of gradients| of activations//g; s/, / + /g')
      memory="$(from_log "$way" 'cpu:0 held at most ([0-9.]+) MiB'), $(from_log "$way" 'cpu:1 held at most ([0-9.]+) MiB')"
    fi
    row "$model" "$way" "$(spread <"$folder/$model-$way")" \
      "$([ "$way" = workers ] || spread <"$folder/$model-$way-ratio")" "$moved" "$memory" "$same"
  done
}

echo "two workers against one process with two devices, $rounds rounds; MiB; median (least to most)"
load
row model way 'ms a step' ratio 'moved in a step' 'held at most' weights
for job; do
  IFS=: read -r model batch steps <<<"$job"
  compare "$model" "$batch" "$steps"
done
load
