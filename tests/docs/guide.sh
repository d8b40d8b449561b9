#!/usr/bin/env bash
# Builds and runs the programs of docs/guide/*.md against an installed dtrain, and compares what they print with what the
# pages say (page.sh).
#
# usage: guide.sh CMAKE PREFIX CXX_COMPILER GENERATOR FOLDER     (FOLDER is made; DTRAIN_CONSUMER_FLAGS: the compiler's)
set -euo pipefail
[ $# -eq 5 ] || { echo "usage: guide.sh CMAKE PREFIX CXX_COMPILER GENERATOR FOLDER" >&2; exit 2; }
cmake=$1 prefix=$2 compiler=$3 generator=$4 work=$5
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/docs/page.sh
source "$root/tests/docs/page.sh"
mkdir -p "$work/source"

names=()
for page in "$root"/docs/guide/*.md; do
  name=$(program_of "$page")
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

cd "$work"
export PATH=$prefix/bin:$PATH
for name in "${names[@]}"; do run_session "$name" "$work/source/$name.session"; done
echo "guide.sh: ${#names[@]} programs print what the pages say"
