# For benchmarks that train in several ways in turns (source it): the programs, a run, what its records say.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
refuse() { echo "$(basename "$0"): $1" >&2; exit 2; }
[ -x "$bin/dtrain-launch" ] || refuse "expected $bin/dtrain-launch; build it or set DTRAIN_BIN"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# check_jobs JOB…: each says MODEL:BATCH:STEPS.
check_jobs() {
  local job
  for job; do [[ $job =~ ^[a-z0-9]+:[0-9]+:[0-9]+$ ]] || refuse "expected --rounds or MODEL:BATCH:STEPS, got '$job'"; done
}

# train RUN WORKERS OPTION…: `dtrain train` on the CPU, one thread for each worker or device, every step recorded; its
# records are in $folder/RUN, what it printed in $folder/RUN.log.
train() {
  local run=$folder/$1 workers=$2
  shift 2
  rm -rf "$run"
  OMP_NUM_THREADS=1 "$bin/dtrain-launch" --nproc_per_node="$workers" dtrain train --threads 1 --log-every 1 \
    --eval-every 0 --checkpoint-every 0 --resume never --profile --run-dir "$run" "$@" >"$run.log" 2>&1 ||
    { tail -5 "$run.log" >&2; return 1; }
}

# median: of the numbers in the input, one a line.
median() {
  sort -g |
    awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}
# spread: "median (least to most)" of the numbers in the input, with two decimals.
spread() {
  local all
  all=$(sort -g)
  printf '%.2f (%.2f to %.2f)' "$(median <<<"$all")" "$(head -1 <<<"$all")" "$(tail -1 <<<"$all")"
}

# recorded RUN FIELD: a field of each step in metrics.jsonl, in order.
recorded() { sed -nE "s/^\{\"event\":\"step\",.*\"$2\":([0-9.e+-]+)[,}].*/\1/p" "$folder/$1/metrics.jsonl"; }
# step_ms RUN WARMUP: milliseconds of the median step after WARMUP steps.
step_ms() {
  recorded "$1" time | awk -v from="$2" 'NR > from + 1 { printf "%.4f\n", 1e3 * ($1 - last) } { last = $1 }' | median
}
# weights RUN: the checkpoint's model at the end.
weights() {
  find "$folder/$1/checkpoints" -name model.safetensors | sort | tail -1 | grep . ||
    refuse "$1: expected a checkpoint, got none"
}
# difference RUN RUN STEPS: the largest between the losses of their steps, relative to the loss; words where one is
# missing.
difference() {
  paste <(recorded "$1" loss) <(recorded "$2" loss) |
    awk -v steps="$3" 'function abs(x) { return x < 0 ? -x : x }
         NF == 2 { ++both; d = abs($1 - $2) / (abs($1) > 1 ? abs($1) : 1); if (!(d <= worst)) worst = d }
         END { if (both == steps && NR == steps) printf "%.1e", worst; else print both + 0 " steps in both runs" }'
}
load() { printf 'load of the machine: %s on %s cores\n' "$(cut -d' ' -f1-3 /proc/loadavg)" "$(nproc)"; }
