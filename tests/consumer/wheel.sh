#!/usr/bin/env bash
# Makes the wheel, installs it into an empty virtual environment, and uses it as somebody would who has nothing else of
# dtrain: the launcher on a shell script, `dtrain train`, and a PyTorch script where a Python that has torch is given.
# Needs network (the build backend comes from PyPI) and minutes, so it is run by hand. usage: wheel.sh [FOLDER]
#
# DTRAIN_PEER_PYTHON  a Python that has torch
# DTRAIN_WITH_CUDA    ON: with the CUDA module, which takes an hour to compile (default OFF)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work/wheels}

export DTRAIN_WITH_CUDA=${DTRAIN_WITH_CUDA:-OFF}
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet pip wheel
"$work/tools/bin/pip" wheel --quiet --no-deps --wheel-dir "$out" "$root"
wheel=$(ls -t "$out"/dtrain-*.whl | head -n 1)
echo "wheel.sh: $wheel, $(du -k "$wheel" | cut -f1) KiB"

python3 -m venv "$work/empty"
"$work/empty/bin/pip" install --quiet --no-index "$wheel"
for program in dtrain dtrain-launch dtrain-launch-nodes dtrain-mpi-exchange; do
  foreign=$(LD_TRACE_LOADED_OBJECTS=1 "$work/empty/bin/$program" | awk '/=> \// { print $3 }' |
    grep -vE "^$work/empty/|/lib(c|m|dl|rt|pthread)\.so" || true)
  if [ -n "$foreign" ]; then
    echo "$program of the wheel loads libraries of the system; expected only the C library's own: $foreign"
    exit 1
  fi
done

launch() { env -i HOME="$HOME" PATH=/usr/bin:/bin "$work/empty/bin/dtrain-launch" --nproc_per_node=2 "$@"; }
if ! env -i PATH=/usr/bin:/bin "$work/empty/bin/dtrain" doctor | grep -E '^(ok|note) +mpi '; then
  echo "dtrain doctor says nothing of MPI, or that it is bad"
  exit 1
fi
if command -v mpirun >/dev/null; then
  mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 "$work/empty/bin/dtrain" train --model lenet --backend mpi \
    --dataset synthetic:1x28x28,10,256 --max-steps 3 --run-dir "$work/mpi"
fi
# The workers' shell expands these.
# shellcheck disable=SC2016
[ "$(launch sh -c 'echo $RANK of $WORLD_SIZE' | sort | tr '\n' ',')" = "0 of 2,1 of 2," ]
launch dtrain train --model lenet --dataset synthetic:1x28x28,10,256 --max-steps 3 --run-dir "$work/run"
if [ -n "${DTRAIN_PEER_PYTHON:-}" ]; then
  launch "$DTRAIN_PEER_PYTHON" "$root/examples/launch_anything/ddp.py"
else
  echo "wheel.sh: no PyTorch script was launched: DTRAIN_PEER_PYTHON names no Python that has torch"
fi
echo "wheel.sh: all good"
