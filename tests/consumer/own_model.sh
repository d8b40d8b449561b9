#!/usr/bin/env bash
# A program built against the installed package (examples/own_model) has what `dtrain train` has without a line of code:
# two workers under dtrain-launch and under mpirun, killed with -9 and resumed bit for bit, restarted by the launcher,
# bf16, a trace.   usage: own_model.sh PREFIX PROGRAM FOLDER
set -euo pipefail
prefix=$1 program=$2 work=$3
mkdir -p "$work"
steps=(--epochs 150 --lr 0.3 --momentum 0.9 --seed 4 --eval-every 0 --log-every 100 --checkpoint-every 5)

# launch [LAUNCHER'S OPTIONS --] NAME [OPTIONS]: the program on two workers, its run in that folder.
launch() {
  local options=()
  while [[ ${1:-} == --* ]]; do options+=("$1"); shift; done
  local name=$1
  shift
  "$prefix/bin/dtrain-launch" --nproc_per_node=2 "${options[@]}" "$program" "${steps[@]}" --run-dir "$work/$name" "$@" >"$work/$name.out" 2>&1
}

# kill_rank NAME VARIABLE: kills its rank 1 with -9 as soon as there is a checkpoint; fails when the run is over before.
kill_rank() {
  local folder name
  until compgen -G "$work/$1/checkpoints/step-*" >/dev/null; do sleep 0.01; done
  while [ ! -e "$work/$1/summary.json" ]; do
    for folder in /proc/[0-9]*; do
      { read -r name <"$folder/comm"; } 2>/dev/null && [ "$name" = own_model ] || continue
      grep -qzxF "$2=1" "$folder/environ" 2>/dev/null && grep -qzxF "$work/$1" "$folder/cmdline" 2>/dev/null || continue
      kill -9 "${folder#/proc/}" && return 0
    done
  done
  echo "own_model.sh: $1: the run was over before it could be killed" >&2
  exit 1
}

# expect_failure PID: the run that was killed says so.
expect_failure() { ! wait "$1" || { echo "own_model.sh: expected the killed run to fail, it ended with 0" >&2; exit 1; }; }

weights() { find "$work/$1/checkpoints" -name model.safetensors | sort | tail -1; }
expect_same() { cmp "$(weights whole)" "$(weights "$1")" || { tail -5 "$work/$1.out"; echo "own_model.sh: $1: expected the weights of the run that was left alone" >&2; exit 1; }; }

launch whole
launch killed &
kill_rank killed RANK
expect_failure $!
launch killed
expect_same killed
launch --max-restarts=2 restarted &
kill_rank restarted RANK
wait $!
expect_same restarted
if command -v mpirun >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  under_mpirun() { mpirun --oversubscribe --bind-to none -np 2 "$program" "${steps[@]}" --run-dir "$work/mpirun" >"$work/mpirun.out" 2>&1; }
  under_mpirun &
  kill_rank mpirun OMPI_COMM_WORLD_RANK
  expect_failure $!
  under_mpirun
  expect_same mpirun
else
  echo "own_model.sh: no mpirun here; that part is left out"
fi
launch options --max-steps 12 --precision bf16 --trace auto
[ -s "$work/options/trace-rank1.json" ] || { echo "own_model.sh: expected a trace of rank 1, there is none" >&2; exit 1; }
echo "own_model.sh: killed, resumed and restarted with the same weights"
