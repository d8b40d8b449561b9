#!/usr/bin/env bash
# Bytes that a worker holds with `--shard optimizer`, `gradients` and `parameters` for W = 2, 4, 8, against the formulas:
# an MLP with AdamW whose parameters, gradients and state together take MEGABYTES. A row for each: the formula, what was
# counted between backward and the update, and by how many buckets of 1 MiB that is more (two are expected). The rows "at
# any time" have the two largest modules in the formula and activations in what was counted. Exits with 1 where a bound
# does not hold; these are the unit tests' own counts and bounds, with a larger network.
#
#   bash tests/bench/shards.sh [MEGABYTES, 400]
#   Workers are threads of one process, which needs about 5 times MEGABYTES. BUILD names the build folder (build/release).
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${BUILD:-build/release}/tests/unit_parallel
megabytes=${1:-400}
[[ $megabytes =~ ^[0-9]+$ && $megabytes -ge 16 ]] ||
  { echo "shards.sh: expected MEGABYTES of 16 or more, got '$megabytes'" >&2; exit 2; }
[ -x "$program" ] || { echo "shards.sh: no $program; build it, or set BUILD" >&2; exit 2; }
# A quarter is parameters.
DTRAIN_SHARD_MEGABYTES=$(((megabytes + 3) / 4)) "$program" --gtest_filter='ShardedMemory.*:DividedMemory.*' |
  grep -E '^memory: |FAILED|Failure|Expected|actual' | sed 's/^memory: //'
