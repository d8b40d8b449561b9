#!/usr/bin/env bash
# Every option that a released version has is still understood: options-VERSION.txt lists them, a command and an option a
# line. A release adds its list (DTRAIN_BIN=build/release/bin bash tests/docs/promised_options.sh --list); no line goes.
#
# usage: DTRAIN_BIN=build/release/bin bash tests/docs/promised_options.sh [--list]
set -euo pipefail
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain and dtrain-launch}" && pwd)
commands=("dtrain-launch" "dtrain train" "dtrain eval" "dtrain predict" "dtrain export" "dtrain report" "dtrain convert"
  "dtrain generate" "dtrain tokenize" "dtrain sweep" "dtrain runs" "dtrain runs export" "dtrain doctor" "dtrain sampler"
  "dtrain data check" "dtrain data stats" "dtrain data pack" "dtrain data index" "dtrain bench step" "dtrain bench allreduce"
  "dtrain bench predict")

list() {
  local command
  for command in "${commands[@]}"; do
    # shellcheck disable=SC2086
    "$bin"/$command --help=words | cut -f1 | sed "s/^/$command /"
  done
}

if [ "${1:-}" = --list ]; then
  list
  exit
fi
known=$(list)
gone=$(cat "$(dirname "${BASH_SOURCE[0]}")"/options-*.txt | grep -vxF -f <(echo "$known") || true)
[ -z "$gone" ] || {
  echo "promised_options.sh: expected the options of released versions, found these gone (docs/compatibility.md):"
  echo "$gone"
  exit 1
}
echo "$(wc -l <<<"$known") options"
