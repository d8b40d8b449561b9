#!/usr/bin/env bash
# Test accuracy after a whole training in several precisions, over several seeds: a table of accuracies, their means, and
# each precision's difference from the first. Two workers on the CPU, global batch 256.
#
#   bash tests/bench/accuracy.sh [--model lenet] [--precisions fp32,bf16] [--seeds 0,1,2,3] [--epochs 10] [--lr 0.2]
#   What follows -- is given to dtrain train. DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=lenet precisions=fp32,bf16 seeds=0,1,2,3 epochs=10 lr=0.2
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --model | --precisions | --seeds | --epochs | --lr)
      [ $# -ge 2 ] || { echo "accuracy.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    *) echo "accuracy.sh: expected --model, --precisions, --seeds, --epochs, --lr or --, got '$1'" >&2; exit 2 ;;
  esac
done
[ $# -eq 0 ] || shift
[ -x "$bin/dtrain-launch" ] || { echo "accuracy.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# accuracy SEED PRECISION [ARGUMENT…]: of the test set after the last epoch.
accuracy() {
  local seed=$1 precision=$2 run=$folder/$1-$2
  shift 2
  "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model "$model" --device cpu --precision "$precision" --seed "$seed" \
    --epochs "$epochs" --lr "$lr" --global-batch-size 256 --checkpoint-every 0 --resume never --run-dir "$run" "$@" >"$run.log" 2>&1 ||
    { tail -5 "$run.log" >&2; return 1; }
  sed -nE 's/.*"accuracy": *([0-9.]+).*/\1/p' "$run/metrics.jsonl" | tail -1
}

IFS=, read -ra precision_list <<<"$precisions"
IFS=, read -ra seed_list <<<"$seeds"
printf '%s, %s epochs, lr %s, global batch 256, 2 workers\n%6s' "$model" "$epochs" "$lr" seed
printf '%10s' "${precision_list[@]}"
echo
for seed in "${seed_list[@]}"; do
  printf '%6s' "$seed"
  for precision in "${precision_list[@]}"; do
    value=$(accuracy "$seed" "$precision" "$@")
    [ -n "$value" ] || { echo "accuracy.sh: $precision, seed $seed: no accuracy in metrics.jsonl" >&2; exit 1; }
    echo "$value" >>"$folder/$precision.values"
    printf '%10.4f' "$value"
  done
  echo
done
mean() { awk '{ sum += $1 } END { printf "%.4f", sum / NR }' "$folder/$1.values"; }
printf '%6s' mean
for precision in "${precision_list[@]}"; do printf '%10s' "$(mean "$precision")"; done
echo
first=${precision_list[0]}
for precision in "${precision_list[@]:1}"; do
  awk -v a="$(mean "$first")" -v b="$(mean "$precision")" -v name="$precision - $first" \
    'BEGIN { printf "%s: %+.2f points\n", name, (b - a) * 100 }'
done
