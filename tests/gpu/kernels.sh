#!/usr/bin/env bash
# Runs the kernel tests where there is a GPU; elsewhere skips (77) and says why. run.sh, for GPU machines, does not skip.
#
# usage: kernels.sh PROGRAM
set -euo pipefail
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
  echo "skipped: no NVIDIA driver on this machine (/dev/nvidiactl is missing)"
  exit 77
fi
exec "$1"
