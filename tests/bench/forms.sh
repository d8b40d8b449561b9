#!/usr/bin/env bash
# Compares every form of parallelism, and every pair of forms, with one process that trains the whole batch, and
# prints one table: worst difference of losses and of weights, and whether the bits are equal.
#
#   bash tests/bench/forms.sh [--models mlp,lenet,resnet18,transformer,gpt2-tiny,llama-tiny,branches]
#                             [--workers 1,2,3,4,8] [--over processes,gloo,mpi,threads,gpus] [--rows TEXT]
#
# processes: workers on this machine over shared memory and TCP; mpi: started by mpirun; threads: workers that are
# threads of one process; gpus: emulated GPUs over NCCL's stand-in, devices of a process too; TEXT: only forms whose
# name contains it. gpt2-tiny and llama-tiny train on packed documents with prompts. branches is a network that leaves
# parameters out, once more with frozen layers. Over gpus ResNet-18 and transformers take some ten seconds a row on two
# cores, since emulated GPUs watch each access; other rows take seconds.
# BUILD names the build folder (build/release).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}
models=mlp,lenet,resnet18,transformer,gpt2-tiny,llama-tiny,branches
workers=1,2,3,4,8 over=processes,gloo,mpi,threads,gpus rows=
while (($#)); do
  case $1 in
    --models) models=$2 ;;
    --workers) workers=$2 ;;
    --over) over=$2 ;;
    --rows) rows=$2 ;;
    *) echo "forms.sh: expected --models, --workers, --over or --rows, got $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$build/tests/launch_forms" ] || { echo "forms.sh: no $build/tests/launch_forms; build it, or set BUILD" >&2; exit 2; }
DTRAIN_BIN="$build/bin" DTRAIN_FORMS_MODELS=$models DTRAIN_FORMS_WORKERS=$workers DTRAIN_FORMS_OVER=$over \
  DTRAIN_FORMS_ROWS=$rows DTRAIN_BRANCHES="$build/tests/dtrain_branches" "$build/tests/launch_forms"
