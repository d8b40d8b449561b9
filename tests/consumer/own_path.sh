#!/usr/bin/env bash
# A person's path from an empty folder to a trained network of their own, where dtrain is installed and so is what compiles:
# types the commands, times each, counts the lines that had to be written. usage: own_path.sh EXAMPLES [PREFIX]
#
# EXAMPLES  this repository's examples/, whose own_model stands for what the person writes
# PREFIX    where dtrain is installed (default: where the system's packages are)
set -euo pipefail
examples=$(cd "$1" && pwd) prefix=${2:-/usr}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$prefix/bin:$PATH
cd "$work"
export CMAKE_PREFIX_PATH=$prefix
commands=0
begin=$EPOCHREALTIME

# type_in COMMAND: as a shell gets it.
type_in() {
  local started=$EPOCHREALTIME
  bash -euo pipefail -c "$1" >"$work/output" 2>&1 || { cat "$work/output"; echo "own_path.sh: failed: $1"; exit 1; }
  commands=$((commands + 1))
  printf '%8s s  %s\n' "$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')" "$1"
}

mkdir mine
cp "$examples/own_model/main.cc" mine/main.cc
cat >mine/CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(mine LANGUAGES CXX)
find_package(dtrain REQUIRED COMPONENTS training)
add_executable(mine main.cc)
target_link_libraries(mine PRIVATE dtrain::training)
TEXT
cd mine
type_in 'cmake -S . -B build -DCMAKE_BUILD_TYPE=Release'
type_in 'cmake --build build'
type_in 'dtrain-launch --nproc_per_node=2 build/mine --epochs 300 --lr 0.3 --momentum 0.9 --run-dir first'
for file in first/summary.json first/report.html; do
  [ -s "$file" ] || { echo "own_path.sh: $file: expected a file, there is none"; exit 1; }
done
printf 'own_path.sh: %d commands, %s s, %d lines of C++, %d of CMake; test loss %s\n' "$commands" \
  "$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')" "$(wc -l <main.cc)" "$(wc -l <CMakeLists.txt)" \
  "$(sed -n '/"event": *"eval"/s/.*"loss": *\([0-9.e-]*\).*/\1/p' first/metrics.jsonl | tail -n1)"
