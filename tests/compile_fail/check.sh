#!/usr/bin/env bash
# A program that must not compile, and its control: the same file compiles, and with -DMUST_NOT_COMPILE the compiler
# refuses it for the reason named on the file's line `// refused: <extended regular expression>`. (ctest's WILL_FAIL
# would also be content with a missing compiler or a misspelt header.)
#
# usage: check.sh FILE SOURCE_ROOT CXX_COMPILER
set -euo pipefail
file=$1 root=$2 compiler=$3
compile=("$compiler" -std=c++20 -Wall -Wextra -Werror -I "$root" -fsyntax-only "$file")

reason=$(sed -n 's,^// refused: ,,p' "$file")
[ -n "$reason" ] || { echo "$file: no line '// refused: REGEX'"; exit 1; }

if ! output=$(LC_ALL=C "${compile[@]}" 2>&1); then
  printf '%s\n%s\n' "$file: the control must compile, but:" "$output"
  exit 1
fi
if output=$(LC_ALL=C "${compile[@]}" -DMUST_NOT_COMPILE 2>&1); then
  echo "$file: compiled with -DMUST_NOT_COMPILE; expected an error matching '$reason'"
  exit 1
fi
if ! grep -qE "error: .*($reason)" <<<"$output"; then
  printf '%s\n%s\n' "$file: refused, but for another reason than '$reason':" "$output"
  exit 1
fi
