#!/usr/bin/env bash
# The structure in numbers: files and lines of each room, folders by size, the longest files and functions, classes, the
# virtual functions of each seam, members of the large classes, and which room includes which. Prints; judges nothing
# (tests/lint.sh does). Needs universal-ctags for functions and classes.
#
# usage: bash tests/lint/structure.sh [ROOT]    (ROOT: another tree, say one of an older commit, to compare with)
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
rooms=(runtime collectives parallel training models worker launcher cluster emulation examples)
mapfile -t sources < <(find "${rooms[@]}" -type f | grep -E '\.(h|cc|cu|cuh|def|js|css|html)$' | sort)

lines_of() {  # NAME, then files on the input: how many, and their lines
  mapfile -t files
  printf '%-12s %4d %6d\n' "$1" ${#files[@]} "$(cat /dev/null "${files[@]}" | wc -l)"
}
echo "== rooms: files, lines"
for room in "${rooms[@]}"; do printf '%s\n' "${sources[@]}" | grep "^$room/" | lines_of "$room"; done
printf '%s\n' "${sources[@]}" | lines_of product
find tests -type f | grep -E '\.(h|cc|cu|cuh|def|sh|py|js)$' | lines_of tests

echo "== seams: virtual functions, but for the destructor"
awk '
  match($0, /^class [A-Z][A-Za-z0-9]*( final)?( :|[ ]*\{)/) { split($0, word, /[ :{]+/); name = word[2]; n = pure = 0 }
  name != "" && /^  virtual / && !/~/ { ++n }
  name != "" && /= 0;/ { ++pure }
  /^};/ { if (name != "" && pure > 0 && n > 2) printf "%-28s %3d  %s\n", name, n, FILENAME; name = "" }' \
  $(printf '%s\n' "${sources[@]}" | grep '\.h$') | sort -k2,2nr -k1,1
echo "== classes that are a Strategy"
grep -hoE '^class [A-Za-z]+ (final )?: public (Strategy|StrategyAround|DataParallelStrategy)\b' "${sources[@]}" | awk '{ print $2 }' | sort | paste -sd' '
echo "== types that are called a part"
grep -hoE '^ *(class|struct) [A-Z][A-Za-z]*Parts?\b( final)?( :| \{)' "${sources[@]}" | awk '{ print $2 }' | sort | paste -sd' '

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
  echo "== classes and structures: defined, of which in headers"
  ctags --languages=C++ --langmap=C++:+.cu.cuh --kinds-C++=cs -f - "${sources[@]}" 2>/dev/null |
    awk -F'\t' '{ ++n; if ($2 ~ /\.h$/) ++h } END { print n, h }'
  echo "== members (data) of Trainer, Engine"
  for class in training/loop/trainer.h:Trainer training/engine/engine.h:Engine; do
    [ -e "${class%%:*}" ] || continue
    ctags --languages=C++ --kinds-C++=m --fields=+n -f - "${class%%:*}" | awk -F'\t' -v class="${class##*:}" \
      '$0 ~ "class:(dtrain::)?" class "$" || $0 ~ "class:(dtrain::)?" class "\t" { ++n } END { printf "%-8s %d\n", class, n }'
  done
fi

echo "== arrows: room -> rooms it includes"
grep -oHE '#include "[a-z_]+/' "${sources[@]}" | sed -E 's#^([a-z_]+)/[^:]*:\#include "([a-z_]+)/#\1 \2#' | awk '$1 != $2' |
  sort | uniq -c | awk '{ arrows[$2] = arrows[$2] " " $3 "(" $1 ")" } END { for (room in arrows) print room " ->" arrows[room] }' | sort
