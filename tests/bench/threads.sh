#!/usr/bin/env bash
# What more threads in a worker gain: `dtrain train` on the CPU, each network with each number of threads in turns; the
# median step of each round, its quickest (which other programs disturb least), the CPU seconds of the run, and the ratios to
# one thread. Fails if the weights of any two runs differ.
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

# measure RUN THREADS MODEL BATCH STEPS: median and quickest step in ms, CPU seconds, appended to $folder/RUN.figures.
measure() {
  local run=$1 cpu data
  read -ra data <<<"$(data_of "$3")"
  rm -rf "${folder:?}/$run"
  cpu=$({ TIMEFORMAT='%U %S'; time OMP_WAIT_POLICY=passive "$bin/dtrain" train --threads "$2" --model "$3" --batch-size "$4" \
    --max-steps "$5" --precision "$precision" "${data[@]}" --log-every 1 --eval-every 0 --checkpoint-every 0 --resume never \
    --run-dir "$folder/$run" >"$folder/$run.log" 2>&1; } 2>&1) || { tail -5 "$folder/$run.log" >&2; return 1; }
  recorded "$run" time | awk 'NR > 2 { print 1e3 * ($1 - last) } { last = $1 }' | sort -g |
    awk -v cpu="$cpu" '{ value[NR] = $1 } END { split(cpu, of, " "); print value[int((NR + 1) / 2)], value[1], of[1] + of[2] }' \
      >>"$folder/$run.figures"
}
# middle RUN FIELD: the median over rounds of a field of measure().
middle() { cut -d' ' -f"$2" "$folder/$1.figures" | median; }

load
printf '%-12s %7s %12s %12s %8s %26s\n' "$precision" threads 'median ms' 'quickest ms' 'CPU s' "of the first's: median, quickest"
for job in "${jobs[@]}"; do
  IFS=: read -r model batch steps <<<"$job"
  for ((round = 0; round < rounds; ++round)); do
    for count in "${counts[@]}"; do measure "$model.$count" "$count" "$model" "$batch" "$steps"; done
  done
  for count in "${counts[@]}"; do
    cmp "$(weights "$model.$count")" "$(weights "$model.${counts[0]}")" ||
      refuse "$model: $count threads gave other weights than ${counts[0]}"
    printf '%-12s %7s %12.2f %12.2f %8.2f %16.2f %9.2f\n' "$model:$batch" "$count" "$(middle "$model.$count" 1)" \
      "$(middle "$model.$count" 2)" "$(middle "$model.$count" 3)" \
      "$(awk -v a="$(middle "$model.${counts[0]}" 1)" -v b="$(middle "$model.$count" 1)" 'BEGIN { print a / b }')" \
      "$(awk -v a="$(middle "$model.${counts[0]}" 2)" -v b="$(middle "$model.$count" 2)" 'BEGIN { print a / b }')"
  done
done
load
