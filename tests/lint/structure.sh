#!/usr/bin/env bash
# The structure in numbers: files and lines of each room, folders by size, the longest files and functions, members of the
# large classes, and which room includes which. Prints; judges nothing (tests/lint.sh does). Needs universal-ctags for the
# functions.
#
# usage: bash tests/lint/structure.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rooms=(runtime collectives parallel training models worker launcher cluster examples)
mapfile -t sources < <(git ls-files "${rooms[@]}" | grep -E '\.(h|cc|cu|cuh|def)$')

echo "== rooms: files, lines"
for room in "${rooms[@]}"; do
  printf '%s\n' "${sources[@]}" | grep "^$room/" | xargs -r cat | wc -l |
    awk -v room="$room" -v files="$(printf '%s\n' "${sources[@]}" | grep -c "^$room/" || true)" '{ printf "%-12s %4d %6d\n", room, files, $1 }'
done

echo "== largest folders: files directly inside"
printf '%s\n' "${sources[@]}" | xargs -n1 dirname | sort | uniq -c | sort -rn | sed -n 1,5p

echo "== longest files"
wc -l "${sources[@]}" | grep -v ' total$' | sort -rn | sed -n 1,5p

if command -v ctags >/dev/null && ctags --version | grep -q Universal; then
  echo "== longest functions"
  ctags --languages=C++ --langmap=C++:+.cu.cuh --kinds-C++=f --fields=+ne -f - "${sources[@]}" 2>/dev/null |
    awk -F'\t' '{ line = end = 0
      for (i = 4; i <= NF; ++i) { if ($i ~ /^line:/) line = substr($i, 6); if ($i ~ /^end:/) end = substr($i, 5) }
      if (end) printf "%5d %s:%d %s\n", end - line + 1, $2, line, $1 }' | sort -rn | sed -n 1,8p
  echo "== members (data) of Trainer, Engine"
  for class in training/loop/trainer.h:Trainer training/engine/engine.h:Engine; do
    ctags --languages=C++ --kinds-C++=m --fields=+n -f - "${class%%:*}" | awk -F'\t' -v class="${class##*:}" \
      '$0 ~ "class:(dtrain::)?" class "$" || $0 ~ "class:(dtrain::)?" class "\t" { ++n } END { printf "%-8s %d\n", class, n }'
  done
fi

echo "== arrows: room -> rooms it includes"
grep -oHE '#include "[a-z_]+/' "${sources[@]}" | sed -E 's#^([a-z_]+)/[^:]*:\#include "([a-z_]+)/#\1 \2#' | awk '$1 != $2' |
  sort | uniq -c | awk '{ arrows[$2] = arrows[$2] " " $3 "(" $1 ")" } END { for (room in arrows) print room " ->" arrows[room] }' | sort
