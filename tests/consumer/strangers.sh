#!/usr/bin/env bash
# Scripts that were written for torchrun, unchanged, under dtrain-launch with two processes: plain PyTorch, accelerate,
# Lightning, torch's elastic `record`. Prints each one's seconds, beside torchrun's where the Python has it. Needs a
# Python that has torch, accelerate and lightning, so it is run by hand. usage: strangers.sh [LAUNCHER]
#
# LAUNCHER            the dtrain-launch to use, e.g. that of an installed wheel (default: the one on PATH)
# DTRAIN_PEER_PYTHON  that Python
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launcher=$(realpath "${1:-$(command -v dtrain-launch)}")
python=${DTRAIN_PEER_PYTHON:?"expected a Python that has torch, accelerate and lightning"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHON_EXEC=$python CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
cd "$work"  # Lightning leaves files where it stands
failed=0

# try NAME CODE PATTERN COMMAND…: runs it, with its output in $work/NAME, and says whether it ended with CODE and wrote
# a line that matches.
try() {
  local name=$1 code=$2 pattern=$3 begin=$EPOCHREALTIME got=0
  shift 3
  timeout 300 "$@" >"$work/$name" 2>&1 </dev/null || got=$?
  local seconds verdict=ok
  seconds=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  if [ "$got" -ne "$code" ] || ! grep -qE "$pattern" "$work/$name"; then
    verdict="FAILED: expected exit code $code and a line like /$pattern/, got code $got and:"
    [[ $name == *torchrun* ]] || failed=1  # what torchrun does is for comparison
  fi
  printf '%-28s %6s s, exit code %3d: %s\n' "$name" "$seconds" "$got" "$verdict"
  [ "$verdict" = ok ] || tail -n 12 "$work/$name" | sed 's/^/    /'
}

launch() { try "$1" "$2" "$3" "$launcher" --nproc_per_node=2 "${@:4}"; }
beside() { try "$1 (torchrun)" "$2" "$3" "$python" -m torch.distributed.run --nproc_per_node=2 "${@:4}"; }

for side in launch beside; do
  $side plain 0 'rank 1 of 2: loss' "$here/../../examples/launch_anything/ddp.py"
  $side accelerate 0 'accelerate: 2 processes, loss 0\.' "$here/strangers/with_accelerate.py"
  $side lightning 0 'lightning: 2 processes, loss 0\.' "$here/strangers/with_lightning.py"
  $side elastic 0 'rank 1: elastic, 2 processes, epoch 4' "$here/strangers/elastic.py" "$work/$side.whole"
  $side elastic-restarted 0 'rank 1 resumes from epoch 2' --max-restarts=1 "$here/strangers/elastic.py" "$work/$side.again" fail
done
# What is said of a failure: who, how, the exception that `record` kept, the same exit code.
launch elastic-failed 1 'dtrain-launch: +rank 1 .* failed first: .*1' "$here/strangers/elastic.py" "$work/failed" always
grep -q 'dtrain-launch: .*ValueError: the loss is not finite' "$work/elastic-failed" ||
  { echo "elastic-failed: the exception is not quoted:"; sed 's/^/    /' "$work/elastic-failed"; failed=1; }
launch killed 137 'rank 1 .* failed first: killed by SIGKILL' --no-python sh -c '[ $RANK = 1 ] && kill -9 $$; exec sleep 60'
launch script-missing 2 'nothing-here\.py' "$work/nothing-here.py"
[ "$failed" -eq 0 ] && echo "strangers.sh: all good"
exit "$failed"
