#!/usr/bin/env bash
# Thirty tables that statsmodels, scikit-learn and vega_datasets bring along, trained on with the command that a
# person would guess; skipped without a Python that has them.
#
# usage: train_tables.sh DTRAIN [options of train_tables.py]
set -euo pipefail
if [ -z "${DTRAIN_TABLES_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_TABLES_PYTHON is not set (a Python with pandas, statsmodels, scikit-learn and vega_datasets)"
  exit 77
fi
exec "$DTRAIN_TABLES_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/train_tables.py" "$@"
