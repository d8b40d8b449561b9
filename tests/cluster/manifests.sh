#!/usr/bin/env bash
# Checks the manifests of cluster/kubernetes against Kubernetes' published schemas, unknown fields refused. The validator
# comes from PyPI, so it is run by hand. usage: manifests.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet kubernetes-validate
"$work/venv/bin/kubernetes-validate" --strict "$root"/cluster/kubernetes/*.yaml
