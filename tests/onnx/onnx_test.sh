#!/usr/bin/env bash
# dtrain export, held against ONNX Runtime: each built-in network and one of somebody's own are trained a step,
# predict samples of a file, are exported, checked and run there; and small networks of every operation.
#
# DTRAIN_ONNX_PYTHON  a Python that has onnx, onnxruntime and numpy (tests/run.sh makes one)
# DTRAIN_CASES        dtrain_onnx_cases; DTRAIN_EXAMPLES: the folder of the examples' programs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${DTRAIN_ONNX_PYTHON:-$here/../../build/tools/onnx/bin/python}
if ! "$python" -c 'import onnx, onnxruntime, numpy' 2>/dev/null; then
  echo "skipped: $python has no onnx, onnxruntime and numpy (tests/run.sh installs them)"
  exit 77
fi
dtrain=${DTRAIN_BIN:?expected the folder of dtrain}/dtrain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir cases
"${DTRAIN_CASES:?expected dtrain_onnx_cases}" cases 2>cases.log || { cat cases.log; exit 1; }
triples=()
for file in cases/*.onnx; do triples+=("$file" "${file%.onnx}.x.npy" "${file%.onnx}.y.npy"); done

# inputs NAME SHAPE: random numbers
inputs() {
  "$python" - "$1" "$2" <<'PYTHON'
import sys, numpy
shape = tuple(int(extent) for extent in sys.argv[2].split("x"))
random = numpy.random.default_rng(1)
tokens = sys.argv[1] in ("transformer", "gpt2", "llama")
values = random.integers(0, 256, shape, dtype=numpy.int32) if tokens else random.random(shape, dtype=numpy.float32)
numpy.save(sys.argv[1] + ".x.npy", values)
PYTHON
}

# network NAME SHAPE COMMAND…: trains `steps` steps by COMMAND, then predicts and exports
steps=2
network() {
  local name=$1 shape=$2
  shift 2
  "$@" --max-steps $steps --eval-every 0 --run-dir "$name" >train.log 2>&1 || { cat train.log; exit 1; }
  inputs "$name" "$shape"
  local program=("$1")
  "${program[@]}" predict "$name" --input "$name.x.npy" --output "$name.y.npy" --device cpu
  "${program[@]}" export "$name" "$name.onnx"
  triples+=("$name.onnx" "$name.x.npy" "$name.y.npy")
}
small=(--dataset synthetic:1x28x28,10,64 --global-batch-size 16)
network mlp 5x1x28x28 "$dtrain" train --model mlp "${small[@]}"
network lenet 5x1x28x28 "$dtrain" train --model lenet "${small[@]}"
network resnet18 3x3x32x32 "$dtrain" train --model resnet18 --dataset synthetic:3x32x32,10,16 --global-batch-size 4
# Until batch norm's running statistics are those of its inputs: before, what comes out of 50 layers is 1e28.
steps=16
network resnet50 3x3x32x32 "$dtrain" train --model resnet50 --dataset synthetic:3x32x32,10,16 --global-batch-size 8 --lr 0.005
steps=2
head -c 20000 "$dtrain" >text
network transformer 3x33 "$dtrain" train --model transformer --dataset text:text,context=32 --global-batch-size 4
for name in gpt2 llama; do
  network $name 3x33 "$dtrain" train --model $name-tiny --dataset text:text,context=32 --global-batch-size 4
done
network own_model 7x2 "${DTRAIN_EXAMPLES:?expected the folder of the examples}/own_model" --global-batch-size 16

"$python" "$here/compare.py" "${triples[@]}"
