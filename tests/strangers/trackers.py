#!/usr/bin/env python3
"""What `dtrain runs export` writes, read by MLflow and W&B: a run is trained and exported, MLflow's own store and W&B's
own protobuf messages must give its options and every number of metrics.jsonl.

usage: DTRAIN_BIN=… trackers.py    (DTRAIN_TRACKERS_PYTHON: a Python with mlflow and wandb; without, exit code 77)
"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib


def points_of(run):
    """Step to loss, and the last accuracy."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["event"] == "step"}, [
        line for line in lines if line["event"] == "eval"]


def check_mlflow(run, root):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=f"file://{root}/mlruns")
    experiment = client.get_experiment_by_name("digits")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 1, f"expected one run, got {len(found)}"
    data, info = found[0].data, found[0].info
    assert info.run_name == run.name and info.status == "FINISHED", info
    assert data.params["model"] == "linear" and data.params["lr"] == "0.05", data.params
    losses, evaluations = points_of(run)
    history = client.get_metric_history(info.run_id, "train/loss")
    assert {point.step: point.value for point in history} == losses, "MLflow has other losses than metrics.jsonl"
    assert data.metrics["test/accuracy"] == evaluations[-1]["accuracy"], data.metrics
    assert 0 <= info.end_time - info.start_time < 600_000, info
    artifacts = {artifact.path for artifact in client.list_artifacts(info.run_id)}
    assert {"config.json", "summary.json", "report.html"} <= artifacts, artifacts
    print(f"MLflow: {len(data.params)} parameters, {len(data.metrics)} metrics, {len(history)} losses, {len(artifacts)} files")


def records_of(path):
    """The records of a .wandb file; the log's format is LevelDB's."""
    data = path.read_bytes()
    magic, number, version = struct.unpack("<4sHB", data[:7])
    assert (magic, number, version) == (b":W&B", 0xBEE1, 0), (magic, number, version)
    at, whole = 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        crc, length, kind = struct.unpack("<IHB", data[at:at + 7])
        part = data[at + 7:at + 7 + length]
        assert zlib.crc32(part, zlib.crc32(bytes([kind]))) == crc, f"the checksum at {at} is wrong"
        whole += part
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def check_wandb(run, root):
    import wandb
    from wandb.proto import wandb_internal_pb2 as messages
    folders = list((root / "wandb").glob("offline-run-*"))
    assert len(folders) == 1, folders
    path, = folders[0].glob("run-*.wandb")
    try:  # what wrote and read these files before the program wandb-core did
        from wandb.sdk.internal.datastore import DataStore
        store = DataStore()
        store.open_for_scan(str(path))
        texts = list(iter(store.scan_data, None))
        assert texts == list(records_of(path)), "W&B's own reader sees other records"
    except ImportError:
        texts = list(records_of(path))
    parsed = []
    for text in texts:
        record = messages.Record()
        record.ParseFromString(text)
        parsed.append(record)
    kinds = [record.WhichOneof("record_type") for record in parsed]
    assert kinds[:2] == ["header", "run"] and kinds[-2:] == ["summary", "exit"], kinds
    run_record = parsed[1].run
    config = {item.key: json.loads(item.value_json) for item in run_record.config.update}
    assert run_record.display_name == run.name and run_record.project == "digits", run_record
    assert config["model"] == "linear" and config["lr"] == "0.05", config
    losses, evaluations = points_of(run)
    got, accuracies = {}, []
    for record in parsed:
        if record.WhichOneof("record_type") == "history":
            values = {item.key: json.loads(item.value_json) for item in record.history.item}
            assert record.history.step.num == values["_step"]
            if "train/loss" in values:
                got[values["_step"]] = values["train/loss"]
            if "test/accuracy" in values:
                accuracies.append(values["test/accuracy"])
    assert got == losses, "W&B has other losses than metrics.jsonl"
    assert accuracies[-1] == evaluations[-1]["accuracy"], accuracies
    print(f"W&B {wandb.__version__}: {len(config)} settings, {len(got)} losses, {len(texts)} records")
    # The command itself finds the run, and would send it.
    listed = subprocess.run([sys.executable, "-m", "wandb", "beta", "sync", "--dry-run", str(folders[0])], cwd=root,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
                            env={**os.environ, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "offline"})
    print(f"wandb beta sync --dry-run: exit code {listed.returncode}: {listed.stdout.strip()[:400]}")
    assert listed.returncode == 0 and path.name in listed.stdout, listed.stdout


def main():
    python = os.environ.get("DTRAIN_TRACKERS_PYTHON")
    if not python:
        print("skipped: DTRAIN_TRACKERS_PYTHON names no Python with mlflow and wandb")
        sys.exit(77)
    if "--inside" not in sys.argv:
        sys.exit(subprocess.run([python, __file__, "--inside"], check=False).returncode)
    dtrain = os.path.join(os.environ["DTRAIN_BIN"], "dtrain")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        run = root / "first run"
        subprocess.run([dtrain, "train", "--model", "linear", "--dataset", "synthetic:1x4x4,3,512", "--epochs", "8",
                        "--global-batch-size", "8", "--lr", "0.05", "--log-every", "1", "--run-dir", run], check=True,
                       stdout=subprocess.DEVNULL)
        for tool in ("mlflow", "wandb"):
            for _ in range(2):  # the second writes over the first
                subprocess.run([dtrain, "runs", "export", run, "--to", tool, "--project", "digits", "--output", root], check=True,
                               stdout=subprocess.DEVNULL)
        losses, _ = points_of(run)
        assert len(losses) == 512 and all(math.isfinite(loss) for loss in losses.values())
        check_mlflow(run, root)
        check_wandb(run, root)


if __name__ == "__main__":
    main()
