#!/usr/bin/env bash
# Start and end of N local workers of /bin/true: bare forks of the shell, dtrain-launch, mpirun and srun in turns, one
# run, medians. mpirun and srun are left out where they are not installed; srun runs on the one-machine lab.
# Usage: launch.sh [rounds [OTHER]]; programs from $DTRAIN_BIN. OTHER: a folder with another build's dtrain-launch, to
# compare the two alone, with the median of the rounds' ratios.
set -euo pipefail

rounds=${1:-5} other=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
launch=${DTRAIN_BIN:-$root/build/release/bin}/dtrain-launch
[[ -x $launch ]] || { echo "launch.sh: expected $launch; build it or set DTRAIN_BIN" >&2; exit 2; }
[[ -z $other || -x $other/dtrain-launch ]] || { echo "launch.sh: expected $other/dtrain-launch, found none" >&2; exit 2; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
limit=60 # seconds; mpirun has been seen to hang with 512

bare() { local i; for ((i = 0; i < $1; ++i)); do /bin/true & done; wait; }
dtrain() { "$launch" --nproc_per_node="$1" /bin/true; }
other() { "$other/dtrain-launch" --nproc_per_node="$1" /bin/true; }
openmpi() { timeout "$limit" mpirun --oversubscribe --bind-to none -np "$1" /bin/true >/dev/null 2>&1; }
slurm() { timeout "$limit" srun -N1 -n "$1" --overcommit /bin/true >/dev/null 2>&1; }

ways=(bare dtrain)
if [[ -n $other ]]; then ways=(dtrain other); elif command -v mpirun >/dev/null; then ways+=(openmpi); fi
PATH=$PATH:/usr/sbin:/sbin
if [[ -z $other ]] && command -v slurmctld srun munged >/dev/null; then
  DTRAIN_SLURM_LAB=$(mktemp -d)/lab
  export DTRAIN_SLURM_LAB DTRAIN_LAB_OWNER=$$
  trap 'bash "$root/cluster/lab/slurm.sh" stop >/dev/null' EXIT
  bash "$root/cluster/lab/slurm.sh" start 1 "$(nproc)" >/dev/null
  eval "$(bash "$root/cluster/lab/slurm.sh" env)"
  ways+=(slurm)
fi

# timed WAY N: milliseconds, or "failed".
timed() {
  local begin=$EPOCHREALTIME end code=0 tenths
  "$1" "$2" || code=$?
  end=$EPOCHREALTIME
  tenths=$(((${end/./} - ${begin/./}) / 100))
  if ((code != 0)); then echo failed; else echo "$((tenths / 10)).$((tenths % 10))"; fi
}

# ratios: of dtrain to other, round by round: the median and the quartiles.
ratios() {
  paste <(printf '%s' "${times[dtrain]}") <(printf '%s' "${times[other]}") | awk '!/failed/ { print $1 / $2 }' |
    sort -g | awk '{ r[NR] = $1 } function at(share) { return r[1 + int((NR - 1) * share + 0.5)] }
                   END { printf "  ratio %.3f (%.3f to %.3f) of %d rounds", at(0.5), at(0.25), at(0.75), NR }'
}

# A failed start sorts behind every number.
median() { sort -g -k1,1 <(sed 's/failed/1e9 failed/') | sed -n "$(((rounds + 1) / 2))p" | sed 's/1e9 //'; }

printf 'milliseconds, medians of %d rounds on %d cores\n%8s' "$rounds" "$(nproc)" workers
printf ' %10s' "${ways[@]}"
echo
for workers in 1 8 64 512; do
  declare -A times=()
  for ((round = 0; round < rounds; ++round)); do
    ((round % 2)) && turn=("${ways[@]}") || turn=("${ways[-1]}" "${ways[@]::${#ways[@]}-1}")
    for way in "${turn[@]}"; do times[$way]+="$(timed "$way" "$workers")"$'\n'; done
  done
  printf '%8d' "$workers"
  for way in "${ways[@]}"; do printf ' %10s' "$(printf '%s' "${times[$way]}" | median)"; done
  [[ -z $other ]] || ratios
  echo
done
