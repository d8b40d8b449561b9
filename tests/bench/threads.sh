#!/usr/bin/env bash
# What more threads in a worker gain: `dtrain train` on the CPU, each network with each number of threads in turns, and
# with as many workers of one thread, which share its batch: what the machine allows. The median step of each round, its
# quickest (which other programs disturb least), the CPU seconds of the run, and how many times as fast it is as one
# thread. Fails if the weights of any two numbers of threads differ.
#
#   bash tests/bench/threads.sh [--threads 1,2] [--precision fp32] [--rounds 3] [MODEL:BATCH:STEPS…]
#   DTRAIN_BIN: where dtrain-launch is (default build/release/bin).
set -euo pipefail

# shellcheck source=tests/bench/turns.sh
source "$(dirname "${BASH_SOURCE[0]}")/turns.sh"
threads=1,2 precision=fp32 rounds=3 jobs=()
while [ $# -gt 0 ]; do
  case $1 in
    --threads | --precision | --rounds)
      [ $# -ge 2 ] || refuse "$1 expects a value"
      declare "${1#--}=$2" && shift 2 ;;
    *) jobs+=("$1") && shift ;;
  esac
done
[ ${#jobs[@]} -gt 0 ] || jobs=(mlp:128:60 lenet:128:60 resnet18:32:8 transformer:8:8)
check_jobs "${jobs[@]}"
IFS=, read -ra counts <<<"$threads"

# 64 KiB of text, for the transformer.
awk 'BEGIN { srand(1); for (i = 0; i < 65536; ++i) printf "%c", 97 + int(26 * rand() * rand()) }' >"$folder/text"
data_of() {
  case $1 in
    transformer) echo --dataset=text:text,context=256 "--data-dir=$folder" --width=256 --heads=8 --layers=4 --optimizer=adamw ;;
    *) echo --dataset=synthetic:1x28x28,10,4096 ;;
  esac
}

# measure RUN WORKERS THREADS MODEL BATCH STEPS: median and quickest step in ms, CPU seconds, appended to
# $folder/RUN.figures.
measure() {
  local run=$1 cpu data
  read -ra data <<<"$(data_of "$4")"
  rm -rf "${folder:?}/$run"
  cpu=$({ TIMEFORMAT='%U %S'; time "$bin/dtrain-launch" --nproc_per_node="$2" "$bin/dtrain" train --threads "$3" --model "$4" \
    --global-batch-size "$5" --max-steps "$6" --precision "$precision" "${data[@]}" --log-every 1 --eval-every 0 \
    --checkpoint-every 0 --resume never --run-dir "$folder/$run" >"$folder/$run.log" 2>&1; } 2>&1) ||
    { tail -5 "$folder/$run.log" >&2; return 1; }
  recorded "$run" time | awk 'NR > 2 { print 1e3 * ($1 - last) } { last = $1 }' | sort -g |
    awk -v cpu="$cpu" '{ value[NR] = $1 } END { split(cpu, of, " "); print value[int((NR + 1) / 2)], value[1], of[1] + of[2] }' \
      >>"$folder/$run.figures"
}
# middle RUN FIELD: the median over rounds of a field of measure().
middle() { cut -d' ' -f"$2" "$folder/$1.figures" | median; }

load
printf '%-14s %7s %7s %12s %12s %8s %26s\n' "$precision" workers threads 'median ms' 'quickest ms' 'CPU s' 'times as fast as one thread'
for job in "${jobs[@]}"; do
  IFS=: read -r model batch steps <<<"$job"
  ways=()
  for count in "${counts[@]}"; do
    ways+=("1 $count")
    [ "$count" = 1 ] || ways+=("$count 1")
  done
  for ((round = 0; round < rounds; ++round)); do
    for way in "${ways[@]}"; do
      read -r workers count <<<"$way"
      measure "$model.$workers.$count" "$workers" "$count" "$model" "$batch" "$steps"
    done
  done
  first=$model.${ways[0]/ /.}
  for way in "${ways[@]}"; do
    read -r workers count <<<"$way"
    run=$model.$workers.$count
    [ "$workers" != 1 ] || cmp "$(weights "$run")" "$(weights "$first")" ||
      refuse "$model: $count threads gave other weights than ${counts[0]}"
    printf '%-14s %7s %7s %12.2f %12.2f %8.2f %16.2f %9.2f\n' "$model:$batch" "$workers" "$count" "$(middle "$run" 1)" \
      "$(middle "$run" 2)" "$(middle "$run" 3)" "$(awk -v a="$(middle "$first" 1)" -v b="$(middle "$run" 1)" 'BEGIN { print a / b }')" \
      "$(awk -v a="$(middle "$first" 2)" -v b="$(middle "$run" 2)" 'BEGIN { print a / b }')"
  done
done
load
