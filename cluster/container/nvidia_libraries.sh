#!/usr/bin/env bash
# The libraries that the CUDA module needs when it runs, from PyPI: cuBLAS, cuDNN and NCCL of cuda.sh's major release,
# without headers, as NVIDIA's wheels lay them out, with their licences. usage: nvidia_libraries.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for file in packages.sh cuda.sh; do
  # shellcheck source=/dev/null # beside this script in an image, in cluster/local in the tree
  source "$(ls "$here/$file" "$here/../local/$file" 2>/dev/null | head -n 1)"
done
folder=${1:?"usage: nvidia_libraries.sh FOLDER"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted=()
for wheel in "${cuda_wheels[@]}"; do
  case $wheel in
    # The newest: packages that are given may have been made with a later toolkit than cuda.sh's.
    nvidia-cublas==*) major=${wheel#*==} major=${major%%.*} wanted+=("nvidia-cublas>=$major,<$((major + 1))") ;;
    nvidia-cudnn* | nvidia-nccl*) wanted+=("$wheel") ;;
  esac
done
need_packages python3-venv
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-deps --no-compile --target "$folder" "${wanted[@]}"
rm -rf "$folder"/nvidia/*/include "$folder"/nvidia/*/lib/*.a "$folder/bin"
for library in libcublasLt.so libcudnn.so libnccl.so; do
  ls "$folder"/nvidia/*/lib/"$library".* >/dev/null || die "expected $library in ${wanted[*]}, got none"
done
