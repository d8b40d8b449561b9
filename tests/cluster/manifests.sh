#!/usr/bin/env bash
# Checks the manifests of cluster/kubernetes against Kubernetes' published schemas, unknown fields refused; of the JobSet,
# whose own schema is not among them, each Job inside. The validator comes from PyPI, so it is run by hand.
# usage: manifests.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet kubernetes-validate
"$work/venv/bin/python" - "$root/cluster/kubernetes/jobset.yaml" "$work" <<'PYTHON'
import sys, yaml

with open(sys.argv[1]) as file:
    jobs = yaml.safe_load(file)["spec"]["replicatedJobs"]
for job in jobs:
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
    with open(f"{sys.argv[2]}/jobset-{job['name']}.yaml", "w") as file:
        yaml.safe_dump(body, file)
PYTHON
"$work/venv/bin/kubernetes-validate" --strict "$root/cluster/kubernetes/job.yaml" "$work"/jobset-*.yaml
