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

# read_page HELP COMMAND...: what it prints, in $text.
read_page() {
  local twice long
  text=$("$bin/$2" "${@:3}" "$1") || { fault "${*:2}: $1 failed" && return 1; }
  pages=$((pages + 1))
  twice=$(grep -E '^[^ ]' <<<"$text" | sort | uniq -d)
  [ -z "$twice" ] || fault "${*:2} $1: expected each heading once, got it twice: $twice"
  long=$(grep -E '^.{81}' <<<"$text" || true)
  [ -z "$long" ] || fault "${*:2} $1: expected lines of at most 80 columns, got: $long"
}

# check COMMAND...: its help, short and long, and that of the commands it lists.
check() {
  local text command
  read_page --help "$@" || return 0
  case $text in *" --help-all"*) read_page --help-all "$@" || return 0 ;; esac
  for command in $(sed -nE 's/^  ([a-z]+)  +.*/\1/p' <<<"$text"); do check "$@" "$command"; done
}

check dtrain
check dtrain-launch
[ "$pages" -ge 17 ] || fault "expected to read 17 pages of help or more, got $pages"
[ "$faults" -eq 0 ] || exit 1
echo "$pages pages of help"
