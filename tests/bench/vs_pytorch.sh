#!/usr/bin/env bash
# dtrain and PyTorch side by side on this machine, in one run: LeNet or ResNet-18 on Fashion-MNIST (--model), fp32 or bf16
# (--precision), two workers of one thread each. The rounds alternate. See tests/bench/README.md; the options are those of peer/compare.py (--help).
#
# DTRAIN_PEER_PYTHON  a Python that has torch and numpy; without it one is made outside the tree, from PyPI
# DTRAIN_BIN          where dtrain-launch and dtrain are (default build/release/bin)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ -n "${DTRAIN_PEER_PYTHON:-}" ]; then
  python=$DTRAIN_PEER_PYTHON
else
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain-bench/venv
  python=$venv/bin/python
  if [ ! -f "$venv/.complete" ]; then
    # shellcheck source=cluster/local/packages.sh
    source "$root/cluster/local/packages.sh"
    need_packages python3-venv
    say "making a virtual environment with PyTorch in $venv (a large download, once)"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet torch numpy
    touch "$venv/.complete"
  fi
fi
"$python" -c 'import numpy, torch' || { echo "vs_pytorch.sh: $python has no torch and numpy" >&2; exit 1; }

export DTRAIN_BIN=${DTRAIN_BIN:-$root/build/release/bin}
if [ ! -x "$DTRAIN_BIN/dtrain-launch" ]; then
  echo "vs_pytorch.sh: no dtrain-launch in $DTRAIN_BIN; build it: bash cluster/local/quickstart.sh --build-only" >&2
  exit 1
fi
exec "$python" "$here/peer/compare.py" "$@"
