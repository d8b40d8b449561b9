#!/usr/bin/env bash
# Pictures decoded and transformed here and by Pillow and torchvision; skipped without a Python that has both.
#
# usage: pictures.sh DECODE_PICTURES [options of pictures.py]
set -euo pipefail
if [ -z "${DTRAIN_PICTURES_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_PICTURES_PYTHON is not set (a Python with pillow, torchvision and webdataset)"
  exit 77
fi
exec "$DTRAIN_PICTURES_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/pictures.py" "$@"
