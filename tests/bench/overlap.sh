#!/usr/bin/env bash
# How much of a step's communication is hidden when the network, not a processor, is what it waits for: two hosts with one
# core each (network namespaces), joined by a link of a given speed, each with one worker of `dtrain bench step`. Root.
#
#   bash tests/bench/overlap.sh [RATE...]      default: 1gbit 2gbit 5gbit
#
#   DTRAIN_BIN        where dtrain-launch and dtrain are (default: build/release/bin)
#   OVERLAP_OPTIONS   options of `dtrain bench step` (default: ResNet-18, 64 images of 28 x 28 a worker, 8 steps)
set -euo pipefail

[ $# -gt 0 ] || set -- 1gbit 2gbit 5gbit
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
read -ra options <<<"${OVERLAP_OPTIONS:---model resnet18 --dataset synthetic:1x28x28,10,1000 --batch-size 64 --iterations 8}"
[ -x "$bin/dtrain-launch" ] || { echo "overlap: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }

export DTRAIN_NETNS_LAB=ovl$(($$ % 10000)) DTRAIN_LAB_OWNER=$$
lab() { bash "$root/cluster/lab/netns.sh" "$@"; }
lab start 2 >/dev/null
folder=$(mktemp -d)
trap 'lab stop >/dev/null; rm -rf "$folder"' EXIT
DTRAIN_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export DTRAIN_TOKEN OMP_NUM_THREADS=1

# node RANK: its worker, bound to a core of its own.
node() {
  lab exec "h$1" taskset -c "$1" "$bin/dtrain-launch" --nnodes=2 --node_rank="$1" --nproc_per_node=1 \
    --master_addr="$(lab address h0)" --master_port=29500 dtrain bench step --backend gloo --json "${options[@]}"
}

printf '%-8s %10s %12s %12s %10s %8s\n' link 'step (ms)' 'compute (ms)' 'comm (ms)' 'adds (ms)' hidden
for rate; do
  for i in 0 1; do lab limit "h$i" "$rate"; done
  node 1 >/dev/null &
  node 0 >"$folder/out"
  wait $!
  python3 - "$rate" "$folder/out" <<'PYTHON'
import json
import sys

rate, path = sys.argv[1:]
with open(path) as lines:
    found = [json.loads(line[line.index("{"):]) for line in lines if "hidden_share" in line][0]
print(f"{rate:<8} {found['step_ms']:>10.1f} {found['compute_ms']:>12.1f} {found['communication_ms']:>12.1f}"
      f" {found['exposed_ms']:>10.1f} {100 * found['hidden_share']:>7.0f}%")
PYTHON
done
