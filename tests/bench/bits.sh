#!/usr/bin/env bash
# Trains with two builds in every form of parallelism and compares the bytes of what they save: a change that is to leave
# every number as it was. One line a form: same, or which files differ. Then the second build resumes from the first
# one's checkpoint and both train on, so that old checkpoints are read too. Exits with 1 where anything differs.
#
#   bash tests/bench/bits.sh BEFORE AFTER [--models mlp,lenet,transformer] [--workers 1,2,4] [--rows TEXT] [--matrix]
#
# BEFORE and AFTER are folders with dtrain and dtrain-launch (build/release/bin); TEXT: only forms whose options contain
# it. About a second a run; 200 runs in all. --matrix: instead of the forms, data parallelism over each backend (threads
# of one process too) in each precision.
set -euo pipefail
models=mlp,lenet,transformer workers=1,2,4 rows= matrix=
if (($# < 2)); then
  echo "bits.sh: expected two folders of programs, got $#" >&2
  exit 2
fi
before=$(realpath "$1") after=$(realpath "$2")
shift 2
while (($#)); do
  case $1 in
    --models) models=$2 ;;
    --workers) workers=$2 ;;
    --rows) rows=$2 ;;
    --matrix) matrix=1; shift; continue ;;
    *) echo "bits.sh: expected --models, --workers, --rows or --matrix, got $1" >&2; exit 2 ;;
  esac
  shift 2
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for i in {0..1199}; do echo "the cat sat on mat number $((i * i % 97));"; done >"$folder/words.txt"

forms_of() { # MODEL WORKERS: options of a form a line, those of the launcher before a bar
  printf '%s\n' "|" "|--virtual-workers 8" "|--accumulate 2" "|--precision fp16" "|--clip-grad-value 0.001"
  [ "$2" = 1 ] || printf '%s\n' "|--shard optimizer" "|--shard gradients --accumulate 2" "|--shard parameters" \
    "|--shard parameters --precision fp16" "|--virtual-workers 8 --shard optimizer" "|--sync-every 2" \
    "|--sync-every 2 --outer-lr 0.7" "|--sync-every 2 --outer-lr 0.7 --shard optimizer" \
    "|--compress bf16" "|--compress powersgd:2" "--servers=1|" "|--devices cpu:0,cpu:1" \
    "|--devices cpu:0,cpu:1 --shard optimizer" "|--pipeline 2 --devices cpu:0,cpu:1 --micro-batches 4" \
    "|--pipeline 2 --devices cpu:0,cpu:1 --micro-batches 4 --shard optimizer" \
    "|--pipeline 2 --micro-batches 4 --schedule gpipe" "|--pipeline 2 --micro-batches 4 --precision fp16" \
    "|--pipeline 2 --virtual-workers 8" "|--pipeline 2 --micro-batches 4 --shard parameters"
  [ "$2" = 4 ] && printf '%s\n' "|--shard parameters --shard-group 2" \
    "|--pipeline 2 --virtual-workers 8 --shard optimizer" "|--pipeline 2 --micro-batches 4 --shard optimizer" \
    "|--pipeline 2 --micro-batches 4 --shard gradients" "|--pipeline 2 --micro-batches 4 --compress powersgd:2"
  [ "$1" = transformer ] && [ "$2" != 1 ] && printf '%s\n' "|--tensor 2" "|--tensor 2 --shard optimizer" \
    "|--tensor 2 --shard gradients" "|--tensor 2 --shard parameters --precision fp16" "|--tensor 2 --virtual-workers 8" \
    "|--tensor 2 --compress powersgd:2" "|--pipeline 2 --micro-batches 4 --tied"
  [ "$1" = transformer ] && [ "$2" = 4 ] && printf '%s\n' "|--mesh pp=2,tp=2 --micro-batches 4" \
    "|--mesh pp=2,tp=2 --micro-batches 4 --schedule interleaved" "|--mesh pp=2,tp=2 --micro-batches 4 --shard gradients"
  true
}

matrix_of() { # WORKERS: the same lines, by backend and precision; how threads and ranks of MPI start stands for options
  local precision
  for precision in fp32 bf16 fp16; do
    if [ "$1" = 1 ]; then echo "|--precision $precision"; continue; fi
    printf '%s\n' "|--backend tcp --precision $precision" "|--backend gloo --precision $precision" \
      "mpirun|--backend mpi --precision $precision" "threads|--precision $precision"
  done
}

train() { # PROGRAMS WORKERS RUN STEPS LAUNCHER-OPTIONS TRAINING-OPTIONS
  local start=("$1/dtrain-launch" "--nproc_per_node=$2")
  case $5 in
    mpirun) start=(mpirun --oversubscribe -np "$2") ;;
    threads) start=(env) ;;
    *) read -ra options <<<"$5" && start+=(${options[@]+"${options[@]}"}) ;;
  esac
  # mpirun would read the lines of the forms.
  # shellcheck disable=SC2086 # options are words
  PATH=$1:$PATH "${start[@]}" "$1/dtrain" train --run-dir "$3" --max-steps "$4" $6 \
    $([ "$5" != threads ] || echo "--thread-workers $2") >"$folder/log" 2>&1 </dev/null
}

saved() { # RUN STEPS: the files with numbers of the checkpoint after that step
  (cd "$1"/checkpoints/*"$2" && sha256sum -- *.safetensors) || echo "no checkpoint in $1 after step $2"
}

check() { # MODEL WORKERS LAUNCHER-OPTIONS FORM-OPTIONS
  local common="--model $1 --optimizer adamw --lr 0.01 --clip-grad-norm 0.3 --threads 1 --eval-every 0 --log-every 1 \
    --global-batch-size $([[ $1 == resnet* ]] && echo 8 || echo 64)"
  case $1 in
    resnet*) common+=" --dataset synthetic:3x16x16,10,80" ;;
    transformer) common+=" --dataset text:words.txt,context=16 --data-dir $folder --width 32 --heads 4" ;;
    *) common+=" --dataset synthetic:1x28x28,10,640" ;;
  esac
  rm -rf "$folder/a" "$folder/b"
  if ! train "$before" "$2" "$folder/a" 4 "$3" "$common $4"; then
    echo "refused: $(grep -m1 -E 'dtrain' "$folder/log" | cut -c1-100)"
    return
  fi
  train "$after" "$2" "$folder/b" 4 "$3" "$common $4" || { echo "DIFFERS: fails: $(tail -1 "$folder/log")"; return; }
  if ! diff <(saved "$folder/a" 4) <(saved "$folder/b" 4) >"$folder/diff"; then
    echo "DIFFERS: $(grep -c '^<' "$folder/diff") files"
    return
  fi
  rm -rf "$folder/b" && cp -r "$folder/a" "$folder/b"
  train "$before" "$2" "$folder/a" 6 "$3" "$common $4" || { echo "cannot resume"; return; }
  train "$after" "$2" "$folder/b" 6 "$3" "$common $4" || { echo "DIFFERS: resuming: $(tail -1 "$folder/log")"; return; }
  if diff -q <(saved "$folder/a" 6) <(saved "$folder/b" 6) >/dev/null; then echo same; else
    echo "DIFFERS: when resumed"
  fi
}

bad=0
for model in ${models//,/ }; do
  for count in ${workers//,/ }; do
    while IFS='|' read -r launcher form; do
      [[ "$launcher $form" == *"$rows"* ]] || continue
      verdict=$(check "$model" "$count" "$launcher" "$form")
      [[ $verdict != DIFFERS* ]] || bad=1
      printf '%-12s %2s  %-60s %s\n' "$model" "$count" "${launcher:+$launcher }${form:-data parallel}" "$verdict"
    done < <(if [ -n "$matrix" ]; then matrix_of "$count"; else forms_of "$model" "$count"; fi)
  done
done
exit "$bad"
