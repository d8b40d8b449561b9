#!/usr/bin/env bash
# The rules of the house that a machine can check: formatting, the one direction of includes, which headers stay in
# which rooms, that a source includes what it names, size of files and folders, no exits, prints or flags in libraries,
# lines of the documentation and the files that it names, no word that the code no longer uses (lint/old_words.tsv).
# Prints every violation; exit code 1 when there is one.
#
# usage: bash tests/lint.sh [ROOT]    (ROOT: another tree to check; used by the test of this script)
set -euo pipefail
rules=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lint
old_words=$rules/old_words.tsv
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

rooms=()
for room in cluster collectives emulation examples launcher models parallel runtime training worker; do
  [ ! -d "$room" ] || rooms+=("$room")
done
mapfile -t sources < <(find "${rooms[@]}" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \
  -o -name '*.def' \) | sort)
mapfile -t all_files < <(find "${rooms[@]}" tests cmake -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \
  -o -name '*.cuh' -o -name '*.def' -o -name '*.sh' -o -name '*.py' -o -name '*.cmake' -o -name CMakeLists.txt \) | sort)
mapfile -t scripts < <(find "${rooms[@]}" tests -name '*.js' | sort)
violations=$(mktemp)
trap 'rm -f "$violations"' EXIT

# --- includes -------------------------------------------------------------------------------------------------
# A unit is a room, or an inner room named here. What a unit may include besides itself; nothing points back.
# `room/*` stands for the room and every inner room of it.
arrows='
runtime/base:
runtime/device:      runtime/base
runtime/tensor:      runtime/base runtime/device
runtime/autograd:    runtime/base runtime/device runtime/tensor
runtime/nn:          runtime/base runtime/device runtime/tensor runtime/autograd
runtime/optim:       runtime/base runtime/device runtime/tensor runtime/autograd
runtime/data:        runtime/base runtime/device
runtime/checkpoint:  runtime/base runtime/device
runtime/metrics:     runtime/base runtime/checkpoint
runtime/onnx:        runtime/base runtime/device runtime/tensor runtime/autograd
cluster/net:         runtime/base
cluster/mpi:         runtime/base
cluster/detect:      runtime/base cluster/net
cluster/store:       runtime/base cluster/net
cluster/quorum:      runtime/base cluster/net cluster/store
cluster/rendezvous:  runtime/base cluster/net cluster/detect cluster/store cluster/quorum
launcher/plan:       runtime/base cluster/*
launcher/output:     runtime/base cluster/* launcher/plan
launcher/system:     runtime/base
launcher/agent_store: runtime/base
launcher/watch:      runtime/base cluster/* launcher/plan launcher/output launcher/system
launcher/subreaper:  runtime/base cluster/* launcher/plan launcher/system
launcher/control:    runtime/base cluster/* launcher/plan launcher/output launcher/watch
launcher/process:    runtime/base cluster/* launcher/agent_store launcher/control launcher/plan launcher/output launcher/system launcher/watch launcher/subreaper
launcher/hosts:      runtime/base cluster/* launcher/plan launcher/output launcher/system launcher/subreaper launcher/process
launcher/nodes:      runtime/base cluster/* launcher/control launcher/hosts launcher/plan launcher/output launcher/system launcher/subreaper launcher/process
launcher:            runtime/base cluster/* launcher/*
emulation:
collectives:         runtime/base runtime/device cluster/*
parallel:            runtime/* cluster/* collectives
training:            runtime/* cluster/* collectives parallel
models:              runtime/* cluster/* collectives parallel training
examples:            runtime/* cluster/* collectives parallel training models
worker:              runtime/* cluster/* collectives parallel training models
'
awk -v arrows="$arrows" '
  function unit(path,   parts) {
    split(path, parts, "/")
    return (parts[1] "/" parts[2]) in known ? parts[1] "/" parts[2] : parts[1]
  }
  function room(of,   parts) { split(of, parts, "/"); return parts[1] "/*" }
  function layer(path) {  # what backends stand on, lowest first
    return path ~ /^collectives\/p2p\// ? 1 : path ~ /^collectives\/shm\// ? 2 : 0
  }
  function backend(path,   parts) {  # one implementation behind a seam, e.g. runtime/device/cuda
    if (path ~ /^runtime\/device\/[^\/]+\//) { split(path, parts, "/"); return "runtime/device/" parts[3] }
    if (path ~ /^collectives\/(nccl|mpi|gloo|self|tcp|threads)\//) { split(path, parts, "/"); return "collectives/" parts[2] }
    return ""
  }
  BEGIN {
    lines = split(arrows, line, "\n")
    for (i = 1; i <= lines; i++) {
      if (line[i] == "") continue
      split(line[i], halves, ":")
      known[halves[1]] = 1
      n = split(halves[2], targets, " ")
      for (j = 1; j <= n; j++) may[halves[1], targets[j]] = 1
    }
  }
  !/^[ \t]*#[ \t]*include/ { next }
  {
    from = unit(FILENAME)
    if (match($0, /"[^"]+"/)) {
      header = substr($0, RSTART + 1, RLENGTH - 2)
      to = unit(header)
      where = FILENAME ":" FNR ": "
      if (!(from in known)) print where "folder " from " is not on the map in tests/lint.sh"
      else if (!(to in known)) print where "include \"" header "\" by its path from the repository root"
      else if (from != to && !((from, to) in may) && !((from, room(to)) in may))
        print where from " may not include " to
      if (backend(FILENAME) != "" && backend(header) != "" && backend(FILENAME) != backend(header))
        print where backend(FILENAME) " and " backend(header) " stand side by side; neither may include the other"
      if (layer(FILENAME) > 0 && (backend(header) != "" || layer(header) > layer(FILENAME)))
        print where "what backends stand on may not include what stands on it"
      if (FILENAME ~ /\.h$/ && backend(FILENAME) == "" && backend(header) != "")
        print where "a seam must not know " backend(header) " behind it"
    } else if (match($0, /<[^>]+>/)) {
      header = substr($0, RSTART + 1, RLENGTH - 2)
      home = ""
      if (header ~ /^(cuda|cublas|cudnn|cub\/|nvml|nvtx|nvToolsExt|cooperative_groups|mma\.h|thrust\/)/) home = "^runtime/device/cuda/|^collectives/nccl/|^emulation/|\\.cuh?$"
      else if (header ~ /^nccl/) home = "^collectives/nccl/|^emulation/"
      else if (header ~ /^mpi\.h/) home = "^collectives/mpi/|^cluster/mpi/"
      else if (header ~ /^gloo\//) home = "^collectives/gloo/"
      else if (header ~ /^(oneapi\/)?dnnl/) home = "^runtime/device/cpu/"
      if (home != "" && FILENAME !~ home) print FILENAME ":" FNR ": <" header "> stays in its room (" home ")"
    }
  }' "${sources[@]}" >>"$violations"

# --- each file ------------------------------------------------------------------------------------------------
max_lines=500
wc -l "${all_files[@]}" | awk -v max="$max_lines" '$2 != "total" && $1 > max {
  print $2 ": " $1 " lines; split it (at most " max ")" }' >>"$violations"
max_files=30
printf '%s\n' "${sources[@]}" | sed 's|/[^/]*$||' | sort | uniq -c | awk -v max="$max_files" '$1 > max {
  print $2 ": " $1 " files; group some of them in a folder of their own (at most " max ")" }' >>"$violations"
awk 'FNR == 1 && FILENAME !~ /\.(cmake|txt)$/ && !/^(\/\/|#|"""|\/\*)/ { print FILENAME ":1: begin with two or three lines: what the file is for, the one thing to know" }' \
  "${all_files[@]}" >>"$violations"
for header in "${sources[@]}"; do
  [[ $header != *_impl.h ]] || continue  # meant to be included more than once
  [[ $header != *.h && $header != *.cuh ]] || grep -q '^#pragma once' "$header" ||
    echo "$header: no '#pragma once'" >>"$violations"
done
awk 'FILENAME ~ /\.(h|cuh)$/ && /^[ \t]*using namespace/ { print FILENAME ":" FNR ": no using namespace in a header" }
  /^[ \t]*\/\// { next }
  FILENAME ~ /(^|\/)(main|[a-z_]*_main)\.cc$/ { next }
  /(^|[^A-Za-z0-9_.>])(std::)?(exit|quick_exit)\(/ { print FILENAME ":" FNR ": libraries never exit; throw an Error" }
  FILENAME ~ /^(runtime|collectives|cluster)\// && /std::(cout|cerr|clog)|(^|[^A-Za-z0-9_])(std::)?(printf|puts|fprintf)\(/ {
    print FILENAME ":" FNR ": libraries never print; return the text or use Log" }
  # Few files name flags for a reason: two parse every program'"'"'s, two start programs of Slurm'"'"'s and Flux'"'"'s.
  FILENAME ~ /^(runtime|collectives|cluster|parallel|models)\// && !/^[ \t]*#/ &&
  FILENAME !~ /^(runtime\/base\/options(_help)?|cluster\/detect\/(slurm_node|detect_flux))\.(cc|h)$/ && /"[^"]*--[a-z][^"]*"/ {
    print FILENAME ":" FNR ": libraries know no flags; say what is expected, the program that owns the flag names it" }' \
  "${sources[@]}" >>"$violations"

# --- tests ----------------------------------------------------------------------------------------------------
while IFS= read -r file; do
  list=$(dirname "$file")/CMakeLists.txt
  [ -e "$list" ] || list=$(dirname "$(dirname "$file")")/CMakeLists.txt
  grep -qsF "$(basename "$file")" "$list" || echo "$file:1: a test that is not built; name it in $list"
done < <(printf '%s\n' "${all_files[@]}" | grep -E '^(\./)?tests/.*_test\.cc$') >>"$violations" || true

# --- documentation --------------------------------------------------------------------------------------------
mapfile -t pages < <(find . -name '*.md' -not -path './build/*' -not -path './.*' | sed 's|^\./||' | sort)
[ ${#pages[@]} -eq 0 ] || LC_ALL=C.UTF-8 grep -HnE '^.{121}' "${pages[@]}" | grep -vE '^[^:]+:[0-9]+:(\||.*https?://)' |
  sed -E 's/^([^:]+:[0-9]+):.*/\1: longer than 120 columns; break the line (tables and addresses may be longer)/' >>"$violations" || true

# Files that pages name, by their path or the end of it: `p2p/backoff.h`. Placeholders (no_x.cc) and a user's files are not ours.
names=$(printf '%s\n' "${all_files[@]}" "${scripts[@]}" "${pages[@]}" | sed 's|^\./||')
while IFS=: read -r page line file; do
  case $file in no_x.cc | worker.sh) continue ;; esac
  grep -qE "(^|/)$file\$" <<<"$names" ||
    echo "$page:$line: names $file, which is not there; name what took its place" >>"$violations"
done < <(grep -oHnE '`[a-z_0-9/]+\.(h|cc|cu|cuh|sh|py|def|js|cmake)`' "${pages[@]}" /dev/null | tr -d '`')

# --- names of headers ------------------------------------------------------------------------------------------
python3 "$rules/includes.py" . >>"$violations"

# --- words ----------------------------------------------------------------------------------------------------
while IFS=$'\t' read -r pattern say where; do
  [[ $pattern != '#'* ]] || continue
  grep -v '^CHANGELOG\.md$' <<<"$names" | grep -P -- "$where" | xargs -r grep -HnowP -- "$pattern" |
    awk -v say="$say" '{ print $0 ": a word of the past; say " say }' || true
done <"$old_words" >>"$violations"

# --- formatting -----------------------------------------------------------------------------------------------
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -n "$formatter" ] && "$formatter" --version | grep -q ' version 14\.'; then
  mapfile -t formatted < <(printf '%s\n' "${all_files[@]}" | grep -E '\.(h|cc|cu|cuh)$')
  "$formatter" --dry-run -Werror "${formatted[@]}" 2>&1 | sed -n 's/:\([0-9]*\):[0-9]*: error: code should be clang-formatted.*/:\1: not as clang-format 14 has it; run it with -i on this file/p' |
    sort -t: -k1,1 -u >>"$violations" || true
else
  echo "lint: no clang-format 14 here (apt install clang-format-14); formatting is not checked"
fi

if [ -s "$violations" ]; then
  cat "$violations"
  echo "lint: FAILED, $(wc -l <"$violations") violations in ${#all_files[@]} files"
  exit 1
fi
echo "lint: ${#all_files[@]} files are clean"
