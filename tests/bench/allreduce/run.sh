#!/bin/bash
# all_reduce through shared memory, ours next to raw Gloo and raw MPI, and through TCP on loopback: tests/bench/allreduce/run.sh [WORLD] (default 2).
# Needs a build with -DDTRAIN_BUILD_BENCHMARKS=ON.
set -euo pipefail
world=${1:-2}
root=$(cd "$(dirname "$0")/../../.." && pwd)
program=$(find "$root/build" -name bench_allreduce -type f -perm -u+x | head -1)
[ -n "$program" ] || { echo "bench_allreduce is not built: cmake --preset release -DDTRAIN_BUILD_BENCHMARKS=ON" >&2; exit 1; }
"$program" gloo "$world"
"$program" tcp "$world"
if command -v mpirun > /dev/null; then
  mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$world" "$program" mpi
fi
