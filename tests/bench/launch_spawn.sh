#!/usr/bin/env bash
# What dtrain-launch adds to the cost of starting processes: N workers running /bin/true against N bare forks of it
# by the shell, alternating in one run, medians. Usage: launch_spawn.sh [rounds]; programs from $DTRAIN_BIN.
set -euo pipefail

rounds=${1:-15}
bin=${DTRAIN_BIN:-$(cd "$(dirname "$0")/../.." && pwd)/build/release/bin}
launch=$bin/dtrain-launch
[[ -x $launch ]] || { echo "launch_spawn: expected $launch; build it or set DTRAIN_BIN" >&2; exit 2; }

now_us() { local t=$EPOCHREALTIME; echo "${t/./}"; }

bare_us() {  # $1 processes, all running at once
  local start i
  start=$(now_us)
  for ((i = 0; i < $1; ++i)); do /bin/true & done
  wait
  echo $(($(now_us) - start))
}

launch_us() {
  local start
  start=$(now_us)
  "$launch" --nproc_per_node="$1" /bin/true
  echo $(($(now_us) - start))
}

median() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

status=0
printf '%8s %12s %12s %12s %8s %10s\n' workers bare_ms launch_ms added_ms ratio bound_ms
for workers in 1 8 64; do
  bare=() launched=()
  for ((round = 0; round < rounds; ++round)); do
    bare+=("$(bare_us "$workers")")
    launched+=("$(launch_us "$workers")")
  done
  b=$(printf '%s\n' "${bare[@]}" | median)
  l=$(printf '%s\n' "${launched[@]}" | median)
  # Eight workers may cost 20 ms more than eight bare forks; sixty-four 150 ms in all.
  if ((workers == 64)); then bound=150000 over=$((l > 150000)); else bound=$((b + 20000)) over=$((l > b + 20000)); fi
  awk -v w="$workers" -v b="$b" -v l="$l" -v m="$bound" 'BEGIN {
    printf "%8d %12.2f %12.2f %12.2f %8.2f %10.1f\n", w, b/1000, l/1000, (l-b)/1000, l/b, m/1000 }'
  ((over)) && status=1
done
exit $status
