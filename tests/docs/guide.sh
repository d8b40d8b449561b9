#!/usr/bin/env bash
# Builds and runs the programs of docs/guide/*.md against an installed dtrain, and compares what they print with what the
# pages say. On a page, the indented block after
#   <!-- program: NAME -->   is a program, and that after
#   <!-- run -->             a session: commands behind "$ ", then lines of what they print, in this order; … stands for
#                            anything, other lines may come between.
#
# usage: guide.sh CMAKE PREFIX CXX_COMPILER GENERATOR FOLDER     (FOLDER is made; DTRAIN_CONSUMER_FLAGS: the compiler's)
set -euo pipefail
[ $# -eq 5 ] || { echo "usage: guide.sh CMAKE PREFIX CXX_COMPILER GENERATOR FOLDER" >&2; exit 2; }
cmake=$1 prefix=$2 compiler=$3 generator=$4 work=$5
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$work/source"

# block PAGE MARKER: the indented block behind that line, without its indentation.
block() {
  awk -v marker="$2" '$0 == marker { on = 1; next }
    on && /^    / { print substr($0, 5); some = 1; next }
    on && some && /^$/ { print; next }
    on && some { exit }' "$1"
}

names=()
for page in "$root"/docs/guide/*.md; do
  name=$(sed -n 's/^<!-- program: \([a-z_]*\) -->$/\1/p' "$page")
  [ -n "$name" ] || { echo "guide.sh: $page: expected one program (<!-- program: NAME -->)" >&2; exit 1; }
  block "$page" "<!-- program: $name -->" >"$work/source/$name.cc"
  block "$page" '<!-- run -->' >"$work/source/$name.session"
  [ -s "$work/source/$name.session" ] || { echo "guide.sh: $page: expected a session (<!-- run -->)" >&2; exit 1; }
  names+=("$name")
done

cat >"$work/source/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(guide LANGUAGES CXX)
find_package(dtrain 0.1 REQUIRED COMPONENTS training)
foreach(program ${names[*]})
  add_executable(\${program} \${program}.cc)
  target_link_libraries(\${program} PRIVATE dtrain::training)
endforeach()
EOF
"$cmake" -S "$work/source" -B "$work" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_FLAGS="${DTRAIN_CONSUMER_FLAGS:-}" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
"$cmake" --build "$work" >"$work/build.log" || { cat "$work/build.log"; exit 1; }

# matches LINE: whether the rest of `output` has a line that is like it; continues behind that.
matches() {
  local pattern=${1//\\/\\\\}
  pattern=${pattern//\*/\\*} pattern=${pattern//\?/\\?} pattern=${pattern//\[/\\[} pattern=${pattern//…/*}
  while [ "$next" -lt ${#output[@]} ]; do
    local line=${output[$((next++))]}
    # shellcheck disable=SC2053 # a pattern
    [[ $line != $pattern ]] || return 0
  done
  return 1
}

cd "$work"
export PATH=$prefix/bin:$PATH
for name in "${names[@]}"; do
  output=() next=0
  while IFS= read -r line <&3; do
    if [[ $line == '$ '* ]]; then
      code=0
      bash -o pipefail -c "${line#\$ }" >"$name.out" 2>&1 || code=$?
      [ $code -eq 0 ] || { cat "$name.out"; echo "guide.sh: $name: '${line#\$ }' ended with code $code" >&2; exit 1; }
      mapfile -t output <"$name.out"
      next=0
    elif [ -n "$line" ]; then
      matches "$line" || { cat "$name.out"; echo "guide.sh: $name: expected the line '$line' in the output above" >&2; exit 1; }
    fi
  done 3<"$work/source/$name.session"
done
echo "guide.sh: ${#names[@]} programs print what the pages say"
