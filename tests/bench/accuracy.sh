#!/usr/bin/env bash
# Test accuracy after a whole training in several ways, over several seeds: a table of accuracies, their means, and how
# far each way is from the first. On the CPU, global batch 256 unless a way says otherwise.
#
#   bash tests/bench/accuracy.sh [--model lenet] [--seeds 0,1,2,3] [--epochs 10] [--lr 0.2] [--workers 2] [--servers 0]
#                                NAME=OPTIONS…
# NAME=OPTIONS is a column and what `dtrain train` is given for it, after the above and so in place of it, e.g.
#   bash tests/bench/accuracy.sh fp32= bf16="--precision bf16"
#   bash tests/bench/accuracy.sh --workers 4 ddp= local="--sync-every 8"
# DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=lenet seeds=0,1,2,3 epochs=10 lr=0.2 workers=2 servers=0
refuse() { echo "accuracy.sh: $1" >&2; exit 2; }
while [[ ${1-} == --* ]]; do
  case $1 in
    --model | --seeds | --epochs | --lr | --workers | --servers)
      [ $# -ge 2 ] || refuse "$1 expects a value"
      declare "${1#--}=$2" && shift 2 ;;
    *) refuse "expected --model, --seeds, --epochs, --lr, --workers, --servers or NAME=OPTIONS, got '$1'" ;;
  esac
done
[ $# -gt 0 ] || refuse "expected the ways to compare, as in: fp32= bf16='--precision bf16'"
for way in "$@"; do [[ $way == ?*=* ]] || refuse "expected NAME=OPTIONS, got '$way'"; done
[ -x "$bin/dtrain-launch" ] || refuse "expected $bin/dtrain-launch; build it or set DTRAIN_BIN"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# accuracy SEED NAME [OPTION…]: of the test set at the end.
accuracy() {
  local seed=$1 name=$2 run=$folder/$1-$2 launch=("--nproc_per_node=$workers")
  shift 2
  [ "$servers" -eq 0 ] || launch+=("--servers=$servers")
  "$bin/dtrain-launch" "${launch[@]}" dtrain train --model "$model" --device cpu --seed "$seed" --epochs "$epochs" \
    --lr "$lr" --global-batch-size 256 --checkpoint-every 0 --resume never --run-dir "$run" "$@" >"$run.log" 2>&1 ||
    { tail -5 "$run.log" >&2; return 1; }
  sed -nE 's/.*"accuracy": *([0-9.]+).*/\1/p' "$run/metrics.jsonl" | tail -1 | grep . ||
    { echo "accuracy.sh: $name, seed $seed: expected an accuracy in metrics.jsonl, got none" >&2; return 1; }
}

printf '%s, %s epochs, lr %s, global batch 256, %s workers, %s servers\n' "$model" "$epochs" "$lr" "$workers" "$servers"
for way in "$@"; do printf '%s: %s\n' "${way%%=*}" "${way#*=}"; done
printf '%6s' seed
for way in "$@"; do printf '%12s' "${way%%=*}"; done
echo
IFS=, read -ra seed_list <<<"$seeds"
for seed in "${seed_list[@]}"; do
  printf '%6s' "$seed"
  row=()
  for way in "$@"; do
    read -ra options <<<"${way#*=}"
    value=$(accuracy "$seed" "${way%%=*}" "${options[@]}")
    printf '%12.4f' "$value"
    row+=("$value")
  done
  echo
  echo "${row[*]}" >>"$folder/table"
done
awk '{ for (i = 1; i <= NF; ++i) sum[i] += $i } END {
  printf "%6s", "mean"; for (i = 1; i <= NF; ++i) printf "%12.4f", sum[i] / NR
  printf "\n%6s", "points"; for (i = 1; i <= NF; ++i) printf "%+12.2f", 100 * (sum[i] - sum[1]) / NR
  print "" }' "$folder/table"
