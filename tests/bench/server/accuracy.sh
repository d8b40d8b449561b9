#!/usr/bin/env bash
# Test accuracy with parameter servers: synchronous, asynchronous, and asynchronous with a bound, over several seeds; a table,
# means, and each one's difference from the first. Four workers on the CPU, one server, global batch 256.
#
#   bash tests/bench/server/accuracy.sh [--model lenet] [--seeds 0,1,2] [--epochs 3] [--lr 0.2] [--bound 4]
#   What follows -- is given to dtrain train. DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
model=lenet seeds=0,1,2 epochs=3 lr=0.2 bound=4
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --model | --seeds | --epochs | --lr | --bound)
      [ $# -ge 2 ] || { echo "accuracy.sh: $1 expects a value" >&2; exit 2; }
      declare "${1#--}=$2" && shift 2 ;;
    *) echo "accuracy.sh: expected --model, --seeds, --epochs, --lr, --bound or --, got '$1'" >&2; exit 2 ;;
  esac
done
[ $# -eq 0 ] || shift
[ -x "$bin/dtrain-launch" ] || { echo "accuracy.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# accuracy SEED UPDATE [ARGUMENT…]: of the test set after the last update.
accuracy() {
  local seed=$1 update=$2 run=$folder/$1-$2
  local how=(--update "$update")
  [ "$update" != bounded ] || how=(--update async --max-staleness "$bound")
  shift 2
  "$bin/dtrain-launch" --nproc_per_node=4 --servers=1 dtrain train --model "$model" --device cpu --seed "$seed" \
    --epochs "$epochs" --lr "$lr" --global-batch-size 256 --checkpoint-every 0 --resume never --run-dir "$run" "${how[@]}" "$@" \
    >"$run.log" 2>&1 || { tail -5 "$run.log" >&2; return 1; }
  sed -nE 's/.*"accuracy": *([0-9.]+).*/\1/p' "$run/metrics.jsonl" | tail -1
}

updates=(sync async bounded)
IFS=, read -ra seed_list <<<"$seeds"
printf '%s, %s epochs, lr %s, global batch 256, 4 workers, 1 server; bounded: by %s\n%6s' "$model" "$epochs" "$lr" "$bound" seed
printf '%10s' "${updates[@]}"
echo
for seed in "${seed_list[@]}"; do
  row=()
  for update in "${updates[@]}"; do row+=("$(accuracy "$seed" "$update" "$@")"); done
  printf '%6s' "$seed"
  printf '%10.4f' "${row[@]}"
  echo
  printf '%s\n' "${row[*]}" >>"$folder/table"
done
awk '{ for (i = 1; i <= NF; ++i) sum[i] += $i } END {
  printf "%6s", "mean"; for (i = 1; i <= NF; ++i) printf "%10.4f", sum[i] / NR
  printf "\n%6s", "points"; for (i = 1; i <= NF; ++i) printf "%+10.2f", 100 * (sum[i] - sum[1]) / NR; print "" }' "$folder/table"
