#!/usr/bin/env bash
# Without CUDA's headers, and with the emulated machine switched off, the same tests are listed as with them: skipped,
# each with the reason. Configures twice, builds nothing.
#
# usage: emulated_skips.sh BUILD_FOLDER; CMAKE, CTEST and GENERATOR in the environment
set -euo pipefail

build=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# emulated FOLDER: the names of a build's tests with the label.
emulated() { "$CTEST" --test-dir "$1" -N -L emulated | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }

# expect_skips FOLDER REASON OPTION…: configured with the options, all of them are skipped for the reason.
expect_skips() {
  local folder=$1 reason=$2 count
  shift 2
  if ! "$CMAKE" -S "$root" -B "$folder" -G "$GENERATOR" -DDTRAIN_WITH_CUDA=OFF "$@" >"$folder.log" 2>&1; then
    tail -n 20 "$folder.log"
    exit 1
  fi
  if ! diff <(emulated "$build") <(emulated "$folder"); then
    echo "FAILED: expected the tests of $build, got the above with $*"
    exit 1
  fi
  "$CTEST" --test-dir "$folder" -L emulated --verbose >"$folder.tests"
  count=$(emulated "$folder" | wc -l)
  if [ "$(grep -c "skipped: $reason" "$folder.tests")" -ne "$count" ]; then
    cat "$folder.tests"
    echo "FAILED: expected '$reason' of each of $count tests"
    exit 1
  fi
}

expect_skips "$work/off" "no emulated CUDA machine: this build has -DDTRAIN_EMULATED_CUDA=OFF" -DDTRAIN_EMULATED_CUDA=OFF
expect_skips "$work/hidden" "no emulated CUDA machine: these headers were not found: .*cudnn.h, nccl.h.*They come with" \
  -DDTRAIN_HEADER_cudnn_h=OFF -DDTRAIN_HEADER_nccl_h=OFF
grep -q "EMULATED_CUDA.*not found.*missing:.*cudnn.h, nccl.h" "$work/hidden.log" || { cat "$work/hidden.log"; exit 1; }
echo "skipped with a reason: $(emulated "$work/hidden" | wc -l) tests, twice"
