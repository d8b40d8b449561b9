#!/usr/bin/env bash
# The table of all comparisons: docs/benchmarks.md shows the one in the repository, and a program that became slower is
# named. Nothing here is measured against a clock of its own: what starts is held up for as long as ten starts take.
#
# usage: DTRAIN_BIN=build/release/bin bash tests/docs/benchmarks.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain and dtrain-launch}" && pwd)
all=(python3 "$root/tests/bench/all.py")
"${all[@]}" --page "$root/docs/benchmarks.md" --check

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compare() { "${all[@]}" --only "start and end of 1 " --rounds 5 --table "$folder/table.json" "$@" 2>"$folder/said"; }
DTRAIN_BIN=$bin compare --write >"$folder/first"
grep -q '^| start and end of 1 processes, ms |' "$folder/first" ||
  { echo "benchmarks.sh: expected a row of the comparison, got:"; cat "$folder/first"; exit 1; }

begin=$EPOCHREALTIME
for _ in {1..10}; do "$bin/dtrain-launch" --nproc_per_node=1 /bin/true; done
end=$EPOCHREALTIME
printf '#!/bin/sh\nsleep %s\nexec %s/dtrain-launch "$@"\n' "$(((${end/./} - ${begin/./}) / 1000000 + 1))" "$bin" >"$folder/dtrain-launch"
chmod +x "$folder/dtrain-launch"
code=0
DTRAIN_BIN=$folder compare >"$folder/second" || code=$?
if [ "$code" != 1 ] || ! grep -q '^start and end of 1 processes: .* in the table$' "$folder/second"; then
  echo "benchmarks.sh: expected exit code 1 and the row that became slower, got $code and:"
  cat "$folder/second" "$folder/said"
  exit 1
fi
echo "the page is up to date, and what was slowed down is named"
