#!/usr/bin/env bash
# `--virtual-workers 8`: the hash of the weights after training with 1, 2, 3, 4, 5 and 8 workers, which must be one and
# the same (exits with 1 otherwise); and its cost against data parallelism with `--accumulate 8/W`, which runs the same
# passes, for 1, 2 and 4 workers in turns: the median step of each run after its first quarter, of each round the ratio,
# medians and extremes.
#
#   bash tests/bench/virtual_workers.sh [--rounds 7] [MODEL:BATCH:STEPS…]
#   BATCH: of all workers together, a multiple of 8; mlp:256:120 lenet:256:40 resnet18:64:8 if none is given. One thread
#   a worker on the CPU. DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail
# shellcheck source=tests/bench/turns.sh
source "$(dirname "${BASH_SOURCE[0]}")/turns.sh"

rounds=7 parts=8
if [ "${1-}" = --rounds ]; then rounds=${2:?--rounds expects a number}; shift 2; fi
[ $# -gt 0 ] || set -- mlp:256:120 lenet:256:40 resnet18:64:8
check_jobs "$@"
differ=0

# start RUN MODEL BATCH STEPS WORKERS OPTION…
start() { train "$1" "$5" --device cpu --model "$2" --global-batch-size "$3" --max-steps "$4" --momentum 0.9 "${@:6}"; }

# hashes MODEL BATCH STEPS: a row of the weights' hashes by workers.
hashes() {
  local workers hash first=
  printf '%-9s' "$1"
  for workers in 1 2 3 4 5 8; do
    start run "$@" "$workers" --virtual-workers "$parts"
    hash=$(sha256sum "$(weights run)" | cut -c1-10)
    first=${first:-$hash}
    [ "$hash" = "$first" ] || differ=1
    printf '%12s' "$hash"
  done
  echo
}

# cost MODEL BATCH STEPS WORKERS: a row of times and their ratio.
cost() {
  local round way ways=(virtual accumulate) steps=$3 workers=$4 name=$1-$4
  for ((round = 0; round < rounds; ++round)); do
    for way in "${ways[round % 2]}" "${ways[1 - round % 2]}"; do
      if [ "$way" = virtual ]; then set -- "${@:1:4}" --virtual-workers "$parts"
      else set -- "${@:1:4}" --accumulate $((parts / workers)); fi
      start "$way" "$@"
      step_ms "$way" $((steps / 4)) >"$folder/now-$way"
      cat "$folder/now-$way" >>"$folder/$name-$way"
    done
    paste "$folder/now-virtual" "$folder/now-accumulate" | awk '{ print $1 / $2 }' >>"$folder/$name-ratio"
  done
  printf '%-9s %7s  %-30s %-30s %s\n' "$1" "$workers" "$(spread <"$folder/$name-virtual")" \
    "$(spread <"$folder/$name-accumulate")" "$(spread <"$folder/$name-ratio")"
}

load
printf 'weights by workers, %s parts\n%-9s%12s%12s%12s%12s%12s%12s\n' "$parts" model 1 2 3 4 5 8
for job; do IFS=: read -ra job <<<"$job" && hashes "${job[@]}"; done
[ "$differ" = 0 ] || { echo "virtual_workers.sh: expected the same weights for any number of workers" >&2; exit 1; }
printf '\nms a step, %s rounds; median (least to most)\n' "$rounds"
printf '%-9s %7s  %-30s %-30s %s\n' model workers "--virtual-workers $parts" "--accumulate $parts/W" ratio
for job; do
  IFS=: read -ra job <<<"$job"
  for workers in 1 2 4; do cost "${job[@]}" "$workers"; done
done
load
