#!/usr/bin/env bash
# Packed pictures as webdataset and Pillow read them; skipped without a Python that has both.
#
# usage: DTRAIN_BIN=build/ci/bin pack.sh
set -euo pipefail
if [ -z "${DTRAIN_PICTURES_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_PICTURES_PYTHON is not set (a Python with pillow, torchvision and webdataset)"
  exit 77
fi
exec "$DTRAIN_PICTURES_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/pack.py" "${DTRAIN_BIN:?}/dtrain"
