# shellcheck shell=bash disable=SC2154
# What a GPU alone can say, for the rest of 45 minutes: sanitizers, quiet steps, peers that stop, long runs, predictions beside
# measured times, PyTorch. Sourced by run.sh, whose functions and variables it uses; `emulated` is yes where GPUs are
# software, and what means nothing there is left out with a row that says so.

# only_on_gpus NAME SECONDS COMMAND…: a check that software cannot stand in for.
only_on_gpus() {
  if [ "$emulated" = yes ]; then
    rows+=("$(printf '%-28s %-6s %s' "$1" "-" "needs a real GPU")")
    return
  fi
  check "$@"
}

# Convolutions of our networks must be cuDNN's: what it refuses is said once on stderr.
no_direct_convolutions() {
  local model=$1 shape=$2 precision=$3 said
  said=$logs/direct-$model-$precision.txt
  train --model "$model" --dataset "synthetic:$shape,10,64" --global-batch-size 16 --max-steps 4 --precision "$precision" \
    --run-dir "$logs/run-direct-$model-$precision" >"$said" 2>&1 || { tail -n 3 "$said"; return 1; }
  ! grep 'direct kernel' "$said" || return 1
  echo "cuDNN takes all of $model in $precision"
}
export -f no_direct_convolutions
for model in lenet resnet18; do
  for precision in fp32 bf16 fp16; do
    check "cuDNN $model $precision" 120 bash -c "no_direct_convolutions $model 1x28x28 $precision"
  done
done

small='*/*cross_entropy*:*/index_select*:*/scatter_add:*/*_norm_of_rows*:*/sum_*:*/amax_*:Gpu.SlopesOfLosses:Gpu.OptimizerSteps:GpuImages.PoolingAndItsGradient:GpuImages.BatchNormalisation'
for tool in memcheck racecheck synccheck initcheck; do
  only_on_gpus "sanitizer $tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/tests/gpu_kernels" \
    --gtest_brief=1 --gtest_filter="$small"
done

quiet_steps() {
  nsys profile --trace=cuda --force-overwrite=true --export=sqlite --output="$logs/nsys" \
    "$bin/dtrain" train --cuda-graph on --device cuda --data-dir "$data" --checkpoint-every 0 --eval-every 0 --model lenet \
    --max-steps 40 --global-batch-size 240 --lr 0.05 --run-dir "$logs/run-nsys" >/dev/null &&
    python3 "$here/quiet_steps.py" "$logs/nsys.sqlite"
}
export -f quiet_steps
only_on_gpus "nsys steps 10 to 20" 180 bash -c quiet_steps

# A peer that stands still or dies, at each moment that has code of its own.
for moment in connecting recording running; do
  check "stopped rank, $moment" 90 bash "$here/killed_rank.sh" on STOP "$moment"
done
check "killed rank, connecting" 90 bash "$here/killed_rank.sh" on KILL connecting

# Two ranks on one GPU that share their batch norms' statistics are one rank with the whole batch. Such steps wait for each
# other and are not recorded; after a few of them ResNet-18's roundings go their own ways.
steps=200
[ "$emulated" = no ] || steps=8
sync="--model resnet18 --dataset synthetic:1x8x8,10,256 --global-batch-size 16 --lr 0.001 --seed 7"
check "sync batch norm" 400 "$bin/dtrain-launch" --nproc-per-node 2 --no-python "$here/own_host.sh" "$bin/dtrain" train \
  --device cuda:0 --backend nccl --data-dir "$data" --log-every 1 --checkpoint-every 0 --eval-every 0 \
  $sync --sync-batch-norm --max-steps "$steps" --run-dir "$logs/run-sync-2"
check "whole batch norm" 120 bash -c "train $sync --max-steps 4 --run-dir $logs/run-sync-1"
check "losses sync = whole" 30 python3 "$here/compare_losses.py" "$logs/run-sync-1" "$logs/run-sync-2" 1e-2 4

# The f32 gradient of each layer is kept over 8 passes: one pass with all of it says the same.
for passes in 1 8; do
  check "bf16 in $passes passes" 120 bash -c \
    "train --model lenet --global-batch-size 240 --lr 0.05 --seed 42 --precision bf16 --accumulate $passes --max-steps 12 \
     --run-dir $logs/run-passes-$passes"
done
check "losses bf16 8 passes" 30 python3 "$here/compare_losses.py" "$logs/run-passes-1" "$logs/run-passes-8" 2e-2

replays=2000
[ "$emulated" = no ] || replays=60
check "$replays replays" 600 bash -c "train --cuda-graph on --model lenet --dataset synthetic:1x28x28,10,640 \
  --global-batch-size 64 --epochs $((replays / 10)) --eval-every 1 --checkpoint-every 7 --lr 0.01 --run-dir $logs/run-replays"
check "memory of $replays replays" 30 python3 "$here/constant_memory.py" "$logs/run-replays"

# What the data sheet allows beside what the GPU needs; the emulated module is built beside the real one for this.
for model in lenet:1x28x28,10,4096:fp32:256 resnet18:1x28x28,10,4096:bf16:256 resnet50:3x224x224,1000,512:bf16:128; do
  IFS=: read -r name data_set precision batch <<<"$model"
  only_on_gpus "predicted, measured $name" 240 python3 "$here/predicted.py" "$name" "synthetic:$data_set" "$precision" "$batch"
done
only_on_gpus "speed resnet18 bf16" 400 python3 "$here/speed.py" resnet18
only_on_gpus "speed resnet50 bf16" 500 python3 "$here/speed.py" resnet50
only_on_gpus "speed gpt2 bf16" 400 env DTRAIN_BIN="$bin" python3 "$here/../bench/peer/transformer.py" --device cuda --gpt2 \
  --context 1024 --batch 8 --steps 40 --precision bf16 --compile
only_on_gpus "attention f32, gpt2" 300 python3 "$here/attention_speed.py"
# What a step's time is made of, kernel by kernel.
head -c 1000000 /dev/urandom | base64 >"$logs/text"
only_on_gpus "kernels of gpt2 bf16" 300 bash "$here/kernel_times.sh" gpt2 --model gpt2 --dataset text:text,context=1024 \
  --data-dir "$logs" --batch-size 8 --optimizer adamw --precision bf16
only_on_gpus "kernels of resnet50 bf16" 300 bash "$here/kernel_times.sh" resnet50 --model resnet50 \
  --dataset synthetic:3x224x224,1000,512 --batch-size 128 --precision bf16
