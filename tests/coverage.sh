#!/usr/bin/env bash
# Builds the tests with coverage counters, runs them, and prints which share of each room's lines and branches ran.
#
#   bash tests/coverage.sh [--source FOLDER] [--build FOLDER] [--label REGEX] [--filter REGEX] [--jobs N]
#                          [--against TABLE]
#
#   --source FOLDER   the tree to look at [this one]; another commit's worktree, to compare two
#   --build FOLDER    where it is built [build/coverage of this tree]
#   --label REGEX     tests with a matching label [unit|ranks|launch]; tests that kill processes count little, because
#                     a killed process writes no counters
#   --filter REGEX    of those, tests with a matching name [all]; then only their own programs are built, not dtrain
#   --jobs N          [2]
#   --against TABLE   a file with an earlier table; adds the differences
#
# gcovr is installed into DTRAIN_COVERAGE_VENV [~/.cache/dtrain-coverage]. Tests that fail are counted and named; their
# lines count all the same.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source=$root build=$root/build/coverage label='unit|ranks|launch' filter= jobs=2 against=
while (($#)); do
  case $1 in
    --source) source=$(cd "$2" && pwd) ;;
    --build) build=$2 ;;
    --label) label=$2 ;;
    --filter) filter=$2 ;;
    --jobs) jobs=$2 ;;
    --against) against=$2 ;;
    *) echo "coverage.sh: expected --source, --build, --label, --filter, --jobs or --against, got $1" >&2; exit 2 ;;
  esac
  shift 2
done
venv=${DTRAIN_COVERAGE_VENV:-$HOME/.cache/dtrain-coverage}
[ -x "$venv/bin/gcovr" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q gcovr; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Coverage -DCMAKE_CXX_FLAGS_COVERAGE="-O1 --coverage" \
  -DCMAKE_EXE_LINKER_FLAGS=--coverage -DDTRAIN_BUILD_TESTS=ON -DDTRAIN_WITH_CUDA=OFF \
  -DDTRAIN_EMULATED_CUDA=OFF >"$build.configured"
# The programs of these tests alone: their commands name them, and environments what those start.
mapfile -t programs < <(ctest --test-dir "$build" -L "$label" -R "${filter:-.}" --show-only=json-v1 |
  python3 "$root/tests/coverage.py" programs "$build" $filter)
ninja -C "$build" -j "$jobs" "${programs[@]}"
find "$build" -name '*.gcda' -delete
failed=0
ctest --test-dir "$build" -L "$label" -R "${filter:-.}" -j "$jobs" --timeout 900 >"$build.tests" || failed=$?
"$venv/bin/gcovr" --root "$source" --object-directory "$build" -j "$jobs" --json "$build.json" \
  --gcov-ignore-parse-errors=all --gcov-ignore-errors=all --exclude-throw-branches \
  --filter "$source/(runtime|collectives|parallel|training|models|worker|launcher|cluster)/" >"$build.gcovr" 2>&1
grep -E 'tests passed|\(Failed\)|\(Timeout\)' "$build.tests" || true
python3 "$root/tests/coverage.py" table "$build.json" $against
