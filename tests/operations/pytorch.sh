#!/usr/bin/env bash
# Some hundred random cases beside PyTorch; skipped without one.
#
# usage: pytorch.sh EVALUATOR [options of differential.py]
set -euo pipefail
if [ -z "${DTRAIN_PEER_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_PEER_PYTHON is not set (a Python with torch)"
  exit 77
fi
exec "$DTRAIN_PEER_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/differential.py" "$@"
