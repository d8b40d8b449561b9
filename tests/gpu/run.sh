#!/usr/bin/env bash
# Everything that needs a GPU, in one command: builds what it needs, checks kernels, training, NCCL and faults, measures
# against PyTorch, and prints one table. A check that cannot run has failed. For a machine with CUDA, CMake, ninja and PyTorch
# but none of our packages, run pack.sh first on one that has them; .gpu/ goes along, with the programs or with what they need.
#
# usage: tests/gpu/run.sh [--long] [--emulated BUILD_DIR] [FOLDER FOR LOGS]
#   --long       what long.sh adds: 45 minutes in all instead of 10
#   --emulated   on GPUs of software, with what is built in BUILD_DIR (build/ci): tries this script where there is no GPU
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
here=$root/tests/gpu
long=no
emulated=no
while [[ ${1:-} == --* ]]; do
  case $1 in
    --long) long=yes; shift ;;
    --emulated) emulated=yes; built=$(cd "${2:?"--emulated: expected the folder of a build"}" && pwd); shift 2 ;;
    *) echo "run.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done
logs=${1:-$root/build/gpu/logs}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
build=$root/build/gpu
bin=$build/bin
data=/usr/share/datasets/fashion-mnist
[ ! -d .gpu/data ] || data=$root/.gpu/data
rows=()
failed=0

# note NAME VERDICT TEXT: a row of the table.
note() {
  rows+=("$(printf '%-28s %-6s %s' "$1" "$2" "$3")")
  [ "$2" = ok ] || failed=1
  echo "== $1: $2 $3"
}
finish() {
  echo
  printf '%s\n' "${rows[@]}" | tee "$logs/table.txt"
  exit $failed
}
# check NAME SECONDS COMMAND…: runs it under a limit; the last line of its output is the row's text.
check() {
  local name=$1 limit=$2 log
  log=$logs/$(tr ' /' '__' <<<"$1").log
  shift 2
  if timeout "$limit" "$@" >"$log" 2>&1; then
    note "$name" ok "$(tail -n 1 "$log")"
  else
    note "$name" FAILED "exit $?: $(tail -n 1 "$log") (see $log)"
    tail -n 15 "$log"
  fi
}

if [ "$emulated" = yes ]; then
  build=$built
  bin=$build/bin
  export DTRAIN_EMULATED_GPUS=1
  note "gpu" ok "software, by $build"
elif ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$logs/gpu.txt" 2>&1 || [ ! -s "$logs/gpu.txt" ]; then
  note "gpu" FAILED "no NVIDIA GPU on this machine: nvidia-smi sees none"
  finish
else
  note "gpu" ok "$(head -n 1 "$logs/gpu.txt")"
fi

build_all() {
  if [ -e .gpu/built.tar.xz ]; then
    mkdir -p "$build" && tar -C "$build" -xJf .gpu/built.tar.xz && echo "unpacked what was built elsewhere"
    return
  fi
  local places=()
  [ ! -d .gpu/prefix ] || places=(-DCMAKE_PREFIX_PATH="$root/.gpu/prefix" -DOPENSSL_ROOT_DIR="$root/.gpu/prefix"
                                  -DOPENSSL_USE_STATIC_LIBS=ON -DZLIB_ROOT="$root/.gpu/prefix")
  # PyTorch's wheels carry what a bare toolkit may lack; they come last.
  local wheels
  wheels=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) || wheels=
  if [ -n "$wheels" ]; then
    local toolkit
    toolkit=$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")
    [ -e "$toolkit/include/nccl.h" ] || places+=(-DNCCL_ROOT="$wheels/nccl")
    [ -e "$toolkit/include/cudnn.h" ] || places+=(-DCUDNN_ROOT="$wheels/cudnn")
    [ -e "$toolkit/include/cublasLt.h" ] || places+=(-DCUBLAS_ROOT="$wheels/cu13")
  fi
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=native -DDTRAIN_BUILD_TESTS=ON \
    -DDTRAIN_WITH_CUDA=ON -DDTRAIN_WITH_CUDNN=ON -DDTRAIN_WITH_NCCL=ON -DDTRAIN_WITH_MPI=OFF -DDTRAIN_WITH_GLOO=OFF \
    "${places[@]}" || return
  # The emulated module, too: it counts what predictions come from.
  cmake --build "$build" --target dtrain dtrain-launch dtrain_cuda dtrain_cuda_emulated gpu_kernels
}
export -f build_all
export build root
[ "$emulated" = yes ] || check "build" 300 bash -c build_all
[ -x "$bin/dtrain" ] || finish
if [ -d "$build/libs" ]; then
  # Programs that were built elsewhere: their libraries came along, and CUDA's are PyTorch's where the toolkit has none.
  wheels=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) || wheels=
  export LD_LIBRARY_PATH=$build/libs${wheels:+:$wheels/cu13/lib:$wheels/cudnn/lib:$wheels/nccl/lib}:${LD_LIBRARY_PATH:-}
fi

export DTRAIN_BIN=$bin NO_COLOR=1
# Steps run as they come unless a check says otherwise: so what recording them gets wrong fails the checks of recording.
train() { "$bin/dtrain" train --cuda-graph off --device cuda --data-dir "$data" --log-every 1 --checkpoint-every 0 --eval-every 0 "$@"; }
export -f train
export bin build data here logs root DTRAIN_OPERATIONS_DIR=$root/tests/operations

check "doctor" 30 bash -c '"$bin/dtrain" doctor --data-dir "$data" | grep -E "^ok +gpu"'
check "kernels" 90 "$build/tests/gpu_kernels" --gtest_brief=1
if [ "$emulated" = yes ]; then
  :
elif command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer" 120 compute-sanitizer --error-exitcode 9 "$build/tests/gpu_kernels" \
    --gtest_filter='*/*cross_entropy*:*/index_select*:*/scatter_add:*/sum_*:Gpu.SlopesOfLosses:Gpu.OptimizerSteps:GpuImages.PoolingAndItsGradient:GpuImages.BatchNormalisation'
else
  note "compute-sanitizer" FAILED "not installed; it comes with the CUDA Toolkit"
fi

# One worker on the GPU, one on the CPU, two and four ranks on the one GPU: the same losses.
bare="--model lenet --max-steps 20 --global-batch-size 240 --lr 0.05 --seed 42"
common="$bare --momentum 0.9"
check "train cpu" 120 bash -c "train --device cpu $common --run-dir $logs/run-cpu"
check "train gpu" 60 bash -c "train $common --run-dir $logs/run-gpu"
check "train graph" 60 bash -c "train $common --cuda-graph on --run-dir $logs/run-graph"
check "losses gpu = cpu" 30 python3 "$here/compare_losses.py" "$logs/run-cpu" "$logs/run-gpu" 1e-4
# Recorded and as they come; convolution algorithms are tried anew in each run, so sums may be ordered differently.
check "losses graph = gpu" 30 python3 "$here/compare_losses.py" "$logs/run-gpu" "$logs/run-graph" 2e-5
for kind in "bf16 --precision bf16 --optimizer adamw --lr 0.001" "fp16 --precision fp16" "parts --accumulate 4"; do
  read -r name flags <<<"$kind"
  for graph in on off; do
    check "train $name $graph" 60 bash -c "train $bare $flags --cuda-graph $graph --run-dir $logs/run-$name-$graph"
  done
  bound=2e-5
  [ "$name" = parts ] || bound=2e-2 # one rounding to 8 or 11 bits that goes the other way
  check "losses $name graph" 30 python3 "$here/compare_losses.py" "$logs/run-$name-off" "$logs/run-$name-on" "$bound"
done
# 4 full steps an epoch and one of another shape, which runs as it comes between two launches.
image=28
[ "$emulated" = no ] || image=8
epochs="--model resnet18 --dataset synthetic:1x${image}x$image,10,1100 --global-batch-size 240 --epochs 3 --lr 0.001 --seed 42"
for graph in on off; do
  check "epochs $graph" 90 bash -c "train $epochs --eval-every 1 --cuda-graph $graph --run-dir $logs/run-epochs-$graph"
done
check "losses epochs graph" 30 python3 "$here/compare_losses.py" "$logs/run-epochs-off" "$logs/run-epochs-on" 5e-2
for ranks in 2 4; do
  check "nccl $ranks ranks" 90 "$bin/dtrain-launch" --nproc-per-node "$ranks" --no-python "$here/own_host.sh" \
    "$bin/dtrain" train --device cuda --backend nccl --data-dir "$data" --log-every 1 --checkpoint-every 0 --eval-every 0 \
    --cuda-graph off $common --run-dir "$logs/run-nccl-$ranks"
  check "losses nccl $ranks = gpu" 30 python3 "$here/compare_losses.py" "$logs/run-gpu" "$logs/run-nccl-$ranks" 1e-4
done
# The all-reduces are in the recording.
check "nccl graph" 90 "$bin/dtrain-launch" --nproc-per-node 2 --no-python "$here/own_host.sh" \
  "$bin/dtrain" train --device cuda --backend nccl --data-dir "$data" --log-every 1 --checkpoint-every 0 --eval-every 0 \
  --cuda-graph on $common --run-dir "$logs/run-nccl-graph"
check "losses nccl graph = nccl" 30 python3 "$here/compare_losses.py" "$logs/run-nccl-2" "$logs/run-nccl-graph" 2e-5
check "killed rank" 90 bash "$here/killed_rank.sh" off
check "killed rank, graph" 90 bash "$here/killed_rank.sh" on
if [ "$long" = yes ]; then
  # shellcheck source=tests/gpu/long.sh
  source "$here/long.sh"
fi
[ "$emulated" = yes ] || check "speed lenet" 250 python3 "$here/speed.py" lenet
finish
