#!/usr/bin/env bash
# Writes the tables of options in the documentation from what the programs themselves say. A page marks where:
#   <!-- options: dtrain bench step -->  …table…  <!-- end of options -->
# and for what --help=combinations prints, <!-- combinations: dtrain train -->.
#
# usage: DTRAIN_BIN=build/release/bin bash tests/docs/options.sh [--check]
# --check changes nothing: it prints what is out of date; exit code 1 when something is.
set -euo pipefail
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain and dtrain-launch}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${1:-} in
  --check) check=true ;;
  '') check=false ;;
  *) echo "options.sh: expected --check or nothing, got '$1'" >&2 && exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fill PAGE: the page with its tables as they should be.
fill() {
  local line what inside=false
  while IFS= read -r line; do
    if [[ $line == '<!-- end of options -->' ]]; then inside=false; fi
    if ! $inside; then printf '%s\n' "$line"; fi
    if [[ $line =~ ^'<!-- '(options|combinations)': '([a-z -]+)' -->'$ ]]; then
      inside=true
      what=${BASH_REMATCH[1]/options/markdown}
      # shellcheck disable=SC2086 # words of a command
      "$bin"/${BASH_REMATCH[2]} --help="$what" || { echo "options.sh: ${BASH_REMATCH[2]} failed" >&2 && exit 1; }
    fi
  done <"$1"
  if $inside; then echo "options.sh: $1: expected '<!-- end of options -->' after the last table" >&2 && exit 1; fi
}

stale=0
mapfile -t pages < <(grep -lE '^<!-- (options|combinations): ' README.md docs/*.md)
for page in "${pages[@]}"; do
  fill "$page" >"$work/page"
  cmp -s "$work/page" "$page" && continue
  stale=1
  if $check; then diff -u "$page" "$work/page" || true; else cp "$work/page" "$page" && echo "$page: brought up to date"; fi
done
if $check && [ $stale -ne 0 ]; then
  echo "options.sh: the pages above are not as the programs have it; run: DTRAIN_BIN=${DTRAIN_BIN} bash tests/docs/options.sh"
  exit 1
fi
