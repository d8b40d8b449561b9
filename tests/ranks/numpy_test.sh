#!/usr/bin/env bash
# Every collective of every backend against NumPy: a part of the cases, or all with DTRAIN_NUMPY_CASES=all.
#
# DTRAIN_ONNX_PYTHON  a Python that has numpy (tests/run.sh makes one); DTRAIN_RECORDER: dtrain_record_collectives
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${DTRAIN_ONNX_PYTHON:-$here/../../build/tools/onnx/bin/python}
if ! "$python" -c 'import numpy' 2>/dev/null; then
  echo "skipped: $python has no numpy (tests/run.sh installs it)"
  exit 77
fi
case ${DTRAIN_NUMPY_CASES:-some} in
  some) cases=() ;;
  all) cases=(--all) ;;
  *) echo "DTRAIN_NUMPY_CASES: expected some or all, got '$DTRAIN_NUMPY_CASES'"; exit 2 ;;
esac
exec "$python" "$here/numpy_oracle.py" "${DTRAIN_RECORDER:?expected the path of dtrain_record_collectives}" "${cases[@]}"
