#!/usr/bin/env bash
# The tables that statsmodels, scikit-learn and vega_datasets bring along, read here and by pandas; skipped
# without a Python that has them.
#
# usage: tables.sh READ_TABLE [options of tables.py]
set -euo pipefail
if [ -z "${DTRAIN_TABLES_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_TABLES_PYTHON is not set (a Python with pandas, statsmodels, scikit-learn and vega_datasets)"
  exit 77
fi
exec "$DTRAIN_TABLES_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/tables.py" "$@"
