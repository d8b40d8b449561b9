#!/usr/bin/env bash
# Every --help as it reads in a terminal: no heading twice, no line longer than 80 columns. Commands are found in the
# help of the programs, so that a new one is read too.
#
# usage: DTRAIN_BIN=build/release/bin bash tests/docs/help.sh
set -euo pipefail
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain and dtrain-launch}" && pwd)
faults=0 pages=0

fault() {
  echo "help.sh: $1"
  faults=$((faults + 1))
}

# check COMMAND...: its help, and that of the commands it lists.
check() {
  local text twice long command
  text=$("$bin/$1" "${@:2}" --help) || { fault "$*: --help failed" && return; }
  pages=$((pages + 1))
  twice=$(grep -E '^[^ ]' <<<"$text" | sort | uniq -d)
  [ -z "$twice" ] || fault "$*: expected each heading once, got it twice: $twice"
  long=$(grep -E '^.{81}' <<<"$text" || true)
  [ -z "$long" ] || fault "$*: expected lines of at most 80 columns, got: $long"
  for command in $(sed -nE 's/^  ([a-z]+)  +.*/\1/p' <<<"$text"); do check "$@" "$command"; done
}

check dtrain
check dtrain-launch
[ "$pages" -ge 17 ] || fault "expected to read 17 pages of help or more, got $pages"
[ "$faults" -eq 0 ] || exit 1
echo "$pages pages of help"
