#!/usr/bin/env bash
# What `--check-replicas N` costs: two workers of one thread on the CPU train with a comparison behind every step, and
# without any. Milliseconds that rank 0 takes for one comparison (waiting for the other worker included), and the share
# of the time of N steps that it is.
#
#   bash tests/bench/checking.sh [--every 100] [--steps 200] [--optimizer sgd] [MODEL…]
#   --every: N; MODEL: lenet and resnet18 if none is given. DTRAIN_BIN: where dtrain-launch is (default
#   build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
every=100 steps=200 optimizer=sgd
refuse() { echo "checking.sh: $1" >&2; exit 2; }
while [[ ${1-} == --* ]]; do
  case $1 in
    --every | --steps | --optimizer)
      [ $# -ge 2 ] || refuse "$1 expects a value"
      declare "${1#--}=$2" && shift 2 ;;
    *) refuse "expected --every, --steps, --optimizer or models, got '$1'" ;;
  esac
done
[ $# -gt 0 ] || set -- lenet resnet18
[ -x "$bin/dtrain-launch" ] || refuse "expected $bin/dtrain-launch; build it or set DTRAIN_BIN"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# phases MODEL N: milliseconds a step of rank 0, all of it and what belongs to no other phase.
phases() {
  local run=$folder/$1-$2
  OMP_NUM_THREADS=1 "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model "$1" --device cpu \
    --optimizer "$optimizer" --global-batch-size 64 --max-steps "$steps" --eval-every 0 --checkpoint-every 0 \
    --resume never --check-replicas "$2" --run-dir "$run" >"$run.log" 2>&1 || { tail -5 "$run.log" >&2; return 1; }
  sed -nE '/"phase_milliseconds_per_step"/,/}/s/^ *"([a-z]+)": ([0-9.e-]+),?$/\1 \2/p' "$run/summary.json" |
    awk '{ sum += $2 } $1 == "other" { other = $2 } END { print sum, other }'
}

printf '2 workers, global batch 64, %s, %s steps\n' "$optimizer" "$steps"
printf '%10s%14s%20s%24s\n' model 'ms a step' 'ms a comparison' "% of the time, N = $every"
for model; do
  read -r whole beside < <(phases "$model" 0)
  read -r _ with < <(phases "$model" 1)
  awk -v model="$model" -v whole="$whole" -v beside="$beside" -v with="$with" -v n="$every" 'BEGIN {
    cost = with - beside
    printf "%10s%14.3f%20.4f%24.4f\n", model, whole, cost, 100 * cost / (n * whole)
  }'
done
