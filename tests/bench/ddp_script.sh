#!/usr/bin/env bash
# How long until the first line of an unchanged PyTorch script runs, under dtrain-launch and under torchrun: from exec of
# the launcher to the script's own clock reading on its last rank, alternating in one run, medians.
#
#   DTRAIN_PEER_PYTHON=/path/to/python bash tests/bench/ddp_script.sh [rounds] [workers]
set -euo pipefail

rounds=${1:-5}
workers=${2:-2}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
python=${DTRAIN_PEER_PYTHON:-python3}
script=$root/tests/cluster/programs/ddp_train.py
[ -x "$bin/dtrain-launch" ] || { echo "ddp_script: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }
"$python" -c 'import torch' || { echo "ddp_script: $python has no torch; set DTRAIN_PEER_PYTHON" >&2; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FIRST_LINE_FILE=$folder/rank- FIRST_LINE_ONLY=1 PYTHON_EXEC=$python

# first_line COMMAND…: milliseconds from now to the last rank's first line.
first_line() {
  rm -f "$folder"/rank-*
  local start=$EPOCHREALTIME
  "$@" >/dev/null 2>&1
  cat "$folder"/rank-* | sed 's/$/\n/' | awk -v start="$start" '$1 > last { last = $1 } END { printf "%.0f\n", (last - start) * 1000 }'
}

median() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

for ((round = 0; round < rounds; ++round)); do
  first_line "$bin/dtrain-launch" --nproc_per_node="$workers" "$script" >>"$folder/dtrain"
  first_line "$python" -m torch.distributed.run --standalone --nproc_per_node="$workers" "$script" >>"$folder/torchrun"
done
dtrain=$(median <"$folder/dtrain")
torchrun=$(median <"$folder/torchrun")
printf '%-14s %8s ms\n' dtrain-launch "$dtrain" torchrun "$torchrun" difference "$((torchrun - dtrain))"
[ "$((torchrun - dtrain))" -ge 1500 ]
