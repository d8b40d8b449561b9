#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 22.04/24.04 to a trained network: installs, builds, trains LeNet with two workers.
# Safe to run again: only what is missing is installed or built; each run trains into a folder of its own.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/local/quickstart.sh [--workers N] [--build-only] [--cuda] [-- ARGUMENTS OF dtrain train]

  --workers N    worker processes (default 2)
  --build-only   install and build, do not train
  --cuda         build for NVIDIA GPUs, too; where no CUDA toolkit is installed one comes from PyPI into build/tools
                 (2 GB)
  -- ARGUMENTS   replace the default recipe:
                 --epochs 10 --global-batch-size 256 --lr 0.2
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/packages.sh
source "$root/cluster/local/packages.sh"
# shellcheck source=cluster/local/cuda.sh
source "$root/cluster/local/cuda.sh"

workers=2
train=yes
cuda=no
recipe=(--epochs 10 --global-batch-size 256 --lr 0.2)
while [ $# -gt 0 ]; do
  case $1 in
    --workers) workers=${2:?"--workers: expected a number"}; shift 2 ;;
    --build-only) train=no; shift ;;
    --cuda) cuda=yes; shift ;;
    --) shift; recipe=("$@"); break ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
done

started=$SECONDS
say "dtrain quick start: install what is missing, build, train LeNet on Fashion-MNIST with $workers workers"
need_packages "${build_packages[@]}" -- "${build_extras[@]}"
if [ "$cuda" = yes ]; then
  need_cuda "$root"
  # A folder that was configured without CUDA is configured again.
  grep -qsx 'DTRAIN_WITH_CUDA:[A-Z]*=ON' "$root/build/release/CMakeCache.txt" || rm -f "$root/build/release/CMakeCache.txt"
  [ -f "$root/build/release/CMakeCache.txt" ] || rm -f "$root/build/release/build.ninja"
elif has_gpu && ! has_cuda_toolkit; then
  say "this machine has an NVIDIA GPU and no CUDA toolkit: the GPU stays unused; run again with --cuda to use it"
fi
build_preset "$root" release -DDTRAIN_BUILD_TESTS=OFF "${cuda_settings[@]}"
say "installed and built after $((SECONDS - started)) s: $root/build/release/bin"
[ "$train" = yes ] || exit 0

run_dir=runs/$(date +%Y%m%d-%H%M%S)-lenet
command=(build/release/bin/dtrain-launch "--nproc_per_node=$workers"
  dtrain train --model lenet --dataset fashion-mnist "${recipe[@]}" --run-dir "$run_dir")
say "training: ${command[*]}"
"${command[@]}"

# The last evaluation is what the finished network reaches on all test images.
accuracy=$(sed -n '/"event": *"eval"/s/.*"accuracy": *\([0-9.]*\).*/\1/p' "$run_dir/metrics.jsonl" | tail -n1)
say "done in $((SECONDS - started)) s; test accuracy: ${accuracy:-not evaluated}"
say "the run's files are in $root/$run_dir (metrics.jsonl, summary.json, checkpoints/, logs/)"
