#!/usr/bin/env bash
# Runs every fuzz target for a while, one after another, from the seeds in the tree. Prints one line a target and the
# total number of executions; exit code 1 at the first finding, whose input is left in build/fuzz/findings/.
#
# usage: bash tests/fuzz/run.sh [--seconds N] [--targets "a b"]     (N a target, default 60; needs clang 14 or newer)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=60
targets="nodelist tasks_per_node config handshake frames rendezvous_messages rendezvous_session rendezvous_membership csv npy"
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    --targets) targets=$2 && shift 2 ;;
    *) echo "run.sh: expected --seconds N or --targets \"a b\", got $1" >&2 && exit 2 ;;
  esac
done

compiler=$(command -v clang++-14 || command -v clang++) || { echo "no clang++ here (apt install clang)" && exit 77; }
build=build/fuzz
mkdir -p build
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" -DDTRAIN_FUZZ=ON \
  -DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined" >$build.log 2>&1 || {
  tail -n 20 $build.log
  exit 1
}
# shellcheck disable=SC2086
ninja -C $build $(printf 'fuzz_%s ' $targets) >$build.log 2>&1 || {
  tail -n 20 $build.log
  exit 1
}

mkdir -p $build/findings
total=0
for target in $targets; do
  corpus=$build/corpus/$target
  mkdir -p "$corpus" "tests/fuzz/seeds/$target"
  log=$build/$target.log
  longest=1024
  [ "$target" != frames ] || longest=200  # every input is read byte by byte, and each byte costs an HMAC
  if ! $build/tests/fuzz_"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=$longest \
    -artifact_prefix=$build/findings/"$target"- -print_final_stats=1 "$corpus" "tests/fuzz/seeds/$target" >"$log" 2>&1; then
    tail -n 30 "$log"
    echo "$target: FINDING; its input is in $build/findings/"
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  printf '%-24s %10d executions, %6d edges, %4d inputs kept\n' "$target" "$runs" "$coverage" "$(find "$corpus" -type f | wc -l)"
  total=$((total + runs))
done
echo "no finding in $total executions"
