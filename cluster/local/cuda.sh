# shellcheck shell=bash disable=SC2034
# The CUDA toolkit for a machine that has none: nvcc, the runtime, cuBLAS, cuDNN, NCCL and CUB's headers from PyPI's NVIDIA
# wheels, in build/tools/cuda. Sourced after packages.sh with `set -euo pipefail` on.

# Of one release: CUDA 13.0, for drivers from 580 on. cuDNN and NCCL have versions of their own, for CUDA 13.
cuda_wheels=('nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-runtime==13.0.*'
  'nvidia-cuda-cccl==13.0.*' 'nvidia-nvtx==13.0.*' 'nvidia-cublas==13.0.*' 'nvidia-cudnn-cu13>=9' 'nvidia-nccl-cu13>=2.19')

# True where the system has a toolkit that CMake finds by itself.
has_cuda_toolkit() {
  command -v nvcc >/dev/null || [ -x "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" ]
}

# True where the driver shows a GPU.
has_gpu() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# need_cuda ROOT: sets cuda_settings, what CMake needs to build the CUDA module: nothing beside a toolkit of the system's,
# which must be whole then; the wheels elsewhere. Ends the script where they cannot be had: CUDA was asked for.
cuda_settings=()
need_cuda() {
  local tools=$1/build/tools/cuda wheels library
  if has_cuda_toolkit; then
    cuda_settings=(-DDTRAIN_WITH_CUDA=ON)
    return
  fi
  [ "$(uname -m)" = x86_64 ] || [ "$(uname -m)" = aarch64 ] || die "--cuda: NVIDIA has no wheels for $(uname -m)"
  need_python "$1" cuda --no-deps "${cuda_wheels[@]}"
  [ -f "$tools/.complete" ] || die "--cuda: NVIDIA's wheels could not be installed; see pip's message above"
  wheels=$(echo "$tools"/lib/python3*/site-packages/nvidia)
  [ -x "$wheels/cu13/bin/nvcc" ] || die "--cuda: expected nvcc in $wheels/cu13/bin; remove $tools and try again"
  # Wheels have no names for linking, and nvcc looks for its libraries in lib64.
  for library in "$wheels"/*/lib/lib*.so.*; do
    ln -sf "${library##*/}" "${library%.so.*}.so"
  done
  [ -e "$wheels/cu13/lib64" ] || ln -s lib "$wheels/cu13/lib64"
  cuda_settings=(-DDTRAIN_WITH_CUDA=ON -DDTRAIN_WITH_CUDNN=ON -DDTRAIN_WITH_NCCL=ON "-DCUDAToolkit_ROOT=$wheels/cu13"
    "-DCMAKE_CUDA_COMPILER=$wheels/cu13/bin/nvcc" "-DCUDNN_ROOT=$wheels/cudnn" "-DNCCL_ROOT=$wheels/nccl")
}
