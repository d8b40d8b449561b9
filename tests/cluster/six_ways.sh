#!/usr/bin/env bash
# The six ways to start, on the labs: LeNet on Fashion-MNIST with NODES x WORKERS workers each time, and whether losses
# and weights are those of one node, to the last bit. Needs root, Open MPI and what cluster/lab installs.
# Usage: six_ways.sh [NODES] [WORKERS]; programs from $DTRAIN_BIN.
set -euo pipefail

nodes=${1:-2}
workers=${2:-2}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${DTRAIN_BIN:-$root/build/release/bin}
[ -x "$bin/dtrain-launch" ] || { echo "six_ways.sh: expected $bin/dtrain-launch; build it or set DTRAIN_BIN" >&2; exit 2; }
# 77: what cannot be shown here.
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || { echo "six_ways.sh: needs root for network namespaces"; exit 77; }
for tool in ip mpirun munged slurmctld slurmd srun; do
  command -v "$tool" >/dev/null || { echo "six_ways.sh: no $tool here"; exit 77; }
done
probe=ways-probe-$$
ip netns add "$probe" 2>/dev/null && ip netns exec "$probe" true 2>/dev/null || works=no
ip netns del "$probe" 2>/dev/null || true
[ "${works:-yes}" = yes ] || { echo "six_ways.sh: network namespaces do not work here"; exit 77; }
[ -d /usr/share/datasets/fashion-mnist ] || { echo "six_ways.sh: no Fashion-MNIST (apt install dataset-fashion-mnist)"; exit 77; }
folder=$(mktemp -d)
export PATH=$bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export DTRAIN_SLURM_LAB=$folder/slurm DTRAIN_NETNS_LAB=ways$((RANDOM % 100)) DTRAIN_LAB_OWNER=$$
DTRAIN_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
export DTRAIN_TOKEN
slurm() { bash "$root/cluster/lab/slurm.sh" "$@"; }
hosts() { bash "$root/cluster/lab/netns.sh" "$@"; }
trap 'slurm stop >/dev/null 2>&1 || true; hosts stop >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT

all=$((nodes * workers))
recipe() {
  echo train --model lenet --dataset fashion-mnist --max-steps 20 --global-batch-size $((16 * all)) --lr 0.05 \
    --momentum 0.9 --log-every 1 --eval-every 0 --checkpoint-every 0 --run-dir "$folder/$1"
}
# Recipes are meant to be split at spaces.
# shellcheck disable=SC2046
one_node() { dtrain-launch --nproc_per_node="$all" dtrain $(recipe "$1"); }
# shellcheck disable=SC2046
flags_on_each_host() {
  local i pids=()
  for ((i = 0; i < nodes; ++i)); do
    hosts exec "h$i" dtrain-launch --nnodes="$nodes" --node_rank="$i" --master_addr=10.77.0.1 \
      --nproc_per_node="$workers" dtrain $(recipe "$1") &
    pids+=($!)
  done
  wait "${pids[@]}"
}
# shellcheck disable=SC2046
mpirun_launchers() {
  mpirun --oversubscribe --bind-to none -np "$nodes" dtrain-launch --nproc_per_node="$workers" dtrain $(recipe "$1")
}
# shellcheck disable=SC2046
mpirun_workers() { mpirun --oversubscribe --bind-to none -np "$all" dtrain $(recipe "$1"); }
# shellcheck disable=SC2046
srun_launchers() {
  slurm run srun -N "$nodes" --ntasks-per-node=1 dtrain-launch --nproc_per_node="$workers" dtrain $(recipe "$1")
}
# shellcheck disable=SC2046
srun_workers() { slurm run srun -N "$nodes" -n "$all" dtrain $(recipe "$1"); }

hosts start "$nodes" >/dev/null
slurm start "$nodes" "$workers" >/dev/null
printf '%d nodes x %d workers\n%-20s %-10s %-34s %s\n' "$nodes" "$workers" way seconds losses weights
expected='' verdict=0
for way in one_node flags_on_each_host mpirun_launchers mpirun_workers srun_launchers srun_workers; do
  begin=$SECONDS code=0
  "$way" "$way" >"$folder/$way.log" 2>&1 || code=$?
  if [ "$code" -ne 0 ]; then
    printf '%-20s exit code %d\n' "$way" "$code"
    tail -n 5 "$folder/$way.log"
    verdict=1
    continue
  fi
  found="$(grep -o '"loss":[0-9.e-]*' "$folder/$way/metrics.jsonl" | md5sum | cut -c1-32) $(
    cat "$folder/$way"/checkpoints/*/model.safetensors | md5sum | cut -c1-32)"
  expected=${expected:-$found}
  same=equal
  [ "$found" = "$expected" ] || { same=DIFFERENT; verdict=1; }
  printf '%-20s %-10d %s %s\n' "$way" $((SECONDS - begin)) "$found" "$same"
done
exit $verdict
