#!/usr/bin/env bash
# dtrain convert, held against PyTorch: its ResNet-50 under torchvision's names and a ResNet-18 under names of its own
# come here with their weights, give the same outputs, and go back.
#
# DTRAIN_PEER_PYTHON  a Python that has torch and numpy
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${DTRAIN_PEER_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_PEER_PYTHON names no Python that has torch"
  exit 77
fi
dtrain=${DTRAIN_BIN:?expected the folder of dtrain}/dtrain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$DTRAIN_PEER_PYTHON" "$here/pytorch_state.py" make
data=(--dataset synthetic:3x32x32,10,8)
for model in resnet18 resnet50; do
  names=()
  [ $model = resnet50 ] || names=(--names $model.names)
  "$dtrain" convert --from $model.safetensors --to $model.ours.safetensors --model $model "${data[@]}" "${names[@]}"
  "$dtrain" train --model $model "${data[@]}" --init-from $model.ours.safetensors --max-steps 0 --run-dir $model \
    >train.log 2>&1 || { cat train.log; exit 1; }
  "$dtrain" predict $model --input x.npy --output $model.here.npy --device cpu
  "$dtrain" convert --from $model --to $model.back.safetensors "${names[@]}"
done
"$DTRAIN_PEER_PYTHON" "$here/pytorch_state.py" check
