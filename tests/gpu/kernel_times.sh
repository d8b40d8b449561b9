#!/usr/bin/env bash
# Each kernel of one training step on this GPU: its launches and its time, the longest first, and how long the GPU stood idle
# between them; traced by CUPTI (trace_kernels.cc), as they ran. run.sh exports bin, build and logs.
#
# usage: kernel_times.sh NAME [OPTIONS OF dtrain train]
set -euo pipefail
name=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
library=$build/lib/libtrace_kernels.so
if [ ! -e "$library" ]; then
  toolkit=$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")
  g++ -O2 -shared -fPIC -I"$toolkit/include" -I"$toolkit/extras/CUPTI/include" -o "$library" "$here/trace_kernels.cc" \
    -L"$toolkit/lib64" -L"$toolkit/extras/CUPTI/lib64" -lcupti
fi
trace=$logs/trace-$name.txt
TRACE_KERNELS=$trace CUDA_INJECTION64_PATH=$library "$bin/dtrain" train --device cuda --max-steps 12 --log-every 1000 --eval-every 0 \
  --checkpoint-every 0 --run-dir "$logs/run-trace-$name" "$@" >"$logs/trace-$name.log" 2>&1 || { tail -n 5 "$logs/trace-$name.log"; exit 1; }
python3 "$here/kernel_times.py" "$trace"
