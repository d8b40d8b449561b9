#!/usr/bin/env bash
# Checks the manifests of cluster/kubernetes against published schemas, unknown fields refused: those of Kubernetes, and
# of Kubeflow Trainer its Python API's models. Of the JobSets, each Job inside. The validators come from PyPI, so it is run
# by hand. With a folder of Kubeflow Trainer's CRDs (manifests/base/crds of its repository) also against these.
# usage: manifests.sh [CRDS]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet kubernetes-validate kubeflow-trainer-api jsonschema
"$work/venv/bin/python" - "$root/cluster/kubernetes" "$work" "${1:-}" <<'PYTHON'
import glob, sys, jsonschema, yaml
import kubeflow_trainer_api.models as models

folder, work, crds = sys.argv[1:]


def documents(name):
    with open(f"{folder}/{name}") as file:
        return list(yaml.safe_load_all(file))


def unknown(given, kept, path=""):
    """Fields of `given` that a model has dropped."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{path}.{key}"
            else:
                yield from unknown(value, kept[key], f"{path}.{key}")
    elif isinstance(given, list):
        for at, value in enumerate(given):
            yield from unknown(value, kept[at], f"{path}[{at}]")


def closed(schema):
    """`schema` with unknown fields refused, as kubectl does."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            schema.setdefault("additionalProperties", False)
        if schema.pop("x-kubernetes-int-or-string", False):
            schema["type"] = ["integer", "string"]
            schema.pop("anyOf", None)
    elif isinstance(schema, list):
        schema = [closed(value) for value in schema]
    return schema


sets = {"jobset": documents("jobset.yaml")[0]["spec"]}
for document in documents("kubeflow_trainer.yaml"):
    kind = document["kind"]
    kept = getattr(models, f"TrainerV1alpha1{kind}").from_dict(document).to_dict()
    if dropped := list(unknown(document, kept)):
        sys.exit(f"kubeflow_trainer.yaml: {kind}: fields that Kubeflow Trainer does not know: {', '.join(dropped)}")
    print(f"INFO {kind} is as Kubeflow Trainer's Python API has it")
    if kind == "ClusterTrainingRuntime":
        sets["runtime"] = document["spec"]["template"]["spec"]
    for path in glob.glob(f"{crds}/*.yaml") if crds else []:
        with open(path) as file:
            crd = yaml.safe_load(file)
        if crd.get("spec", {}).get("names", {}).get("kind") != kind:
            continue
        version = crd["spec"]["versions"][0]
        schema = closed(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {}  # the API server's own
        jsonschema.validate(document, schema)
        print(f"INFO {kind} is as the CRD {version['name']} has it")
for name, spec in sets.items():
    for job in spec["replicatedJobs"]:
        template = job["template"]
        body = {"apiVersion": "batch/v1", "kind": "Job", **template, "metadata": {"name": job["name"]}}
        with open(f"{work}/{name}-{job['name']}.yaml", "w") as file:
            yaml.safe_dump(body, file)
PYTHON
"$work/venv/bin/kubernetes-validate" --strict "$root/cluster/kubernetes/job.yaml" "$work"/*.yaml
