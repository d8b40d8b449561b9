#!/usr/bin/env bash
# packed.py; skipped without a Python with torch and transformers.
#
# usage: packed.sh DTRAIN
set -euo pipefail
if [ -z "${DTRAIN_PEER_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_PEER_PYTHON is not set (a Python with torch and transformers)"
  exit 77
fi
if ! "$DTRAIN_PEER_PYTHON" -c 'import transformers' 2>/dev/null; then
  echo "skipped: DTRAIN_PEER_PYTHON has no transformers"
  exit 77
fi
exec "$DTRAIN_PEER_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/packed.py" "$@"
