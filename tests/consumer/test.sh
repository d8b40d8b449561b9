#!/usr/bin/env bash
# Installs the build into a temporary prefix, moves it, and builds and runs a foreign project against it: what a
# user of find_package(dtrain) does. usage: test.sh CMAKE BUILD_DIR CXX_COMPILER GENERATOR
set -euo pipefail
cmake=$1 build=$2 compiler=$3 generator=$4 flags=${DTRAIN_CONSUMER_FLAGS:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
# Moved after installation: nothing in the package may remember where it was put, nor where it was built.
mv "$work/first" "$work/prefix"
source_root=$(cd "$here/../.." && pwd)
if grep -rlF -e "$build" -e "$source_root" -e "$work/first" "$work/prefix" --include='*.cmake' --include='*.h'; then
  echo "the files above, as installed, name the source or build tree; expected only paths relative to the package"
  exit 1
fi

# configure FOLDER [ARGUMENT…]: configures the project in a build folder of that name.
configure() {
  local folder=$1
  shift
  "$cmake" -S "$here/project" -B "$work/$folder" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" --no-warn-unused-cli "$@"
}

# hide PACKAGE…: arguments with which find_package() does not find these.
hide() { printf -- '-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON\n' "$@"; }

# expect_refusal PATTERN ARGUMENT…: the project must not configure, and say a line that matches.
expect_refusal() {
  local pattern=$1
  shift
  if configure wrong "$@" >"$work/wrong.log" 2>&1 || ! tr '\n' ' ' <"$work/wrong.log" | tr -s ' ' | grep -qE "$pattern"; then
    cat "$work/wrong.log"
    echo "expected the configuration with '$*' to fail with a message that matches: $pattern"
    exit 1
  fi
  rm -rf "$work/wrong"
}

configure build
"$cmake" --build "$work/build"
"$work/build/consumer"
"$work/build/everything"

# What a user copies is a project of its own.
"$cmake" -S "$source_root/examples" -B "$work/examples" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
"$cmake" --build "$work/examples"
bash "$here/own_model.sh" "$work/prefix" "$work/examples/own_model" "$work/runs"
# MPI is a module that a user's program finds in the package; no program links it.
if readelf -d "$work/prefix"/bin/dtrain* "$work/examples/own_model" | grep -E 'NEEDED.*libmpi'; then
  echo "a program above links MPI; expected it in libdtrain_mpi.so alone"
  exit 1
fi
if [ -e "$work/prefix/lib/libdtrain_mpi.so" ] && command -v mpirun >/dev/null; then
  env -u LD_LIBRARY_PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none \
    -np 2 "$work/examples/own_model" --backend mpi --max-steps 3 --run-dir "$work/mpi"
fi
lines=$(wc -l <"$source_root/examples/own_model/main.cc")
if [ "$lines" -gt 60 ]; then
  echo "examples/own_model/main.cc: expected at most 60 lines, got $lines"
  exit 1
fi

# What it takes to compile the umbrella header, as lines that the compiler reads: 3 s of a core at most is some 170,000.
read_lines=$("$compiler" -std=c++20 -I"$work/prefix/include" -E "$source_root/examples/own_model/main.cc" | wc -l)
if [ "$read_lines" -gt 170000 ]; then
  echo "<dtrain/dtrain.h>: expected at most 170000 lines after the preprocessor, got $read_lines; leave headers out of it"
  exit 1
fi

# A user's own kernels, as their page has them: for emulated GPUs, and by nvcc where there is one.
recipe() { bash "$source_root/tests/docs/recipes.sh" --source "$source_root/docs/guide/recipes/own_operation.md" "$@"; }
# make_own FOLDER ARGUMENT…: configures and builds the page's project in a copy of that name.
make_own() {
  local folder=$work/$1
  shift
  mkdir "$folder"
  recipe >"$folder/own_operation.cc"
  recipe 'project: CMakeLists.txt' >"$folder/CMakeLists.txt"
  recipe 'kernels: nearest.cu' | sed "${mutation:-}" >"$folder/nearest.cu"
  "$cmake" -S "$folder" -B "$folder/build" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" "$@"
  "$cmake" --build "$folder/build"
}
# losses_of FOLDER DEVICE: trains with the program there; its eight losses, to five digits.
losses_of() {
  local losses
  (cd "$work/$1" && DTRAIN_EMULATED_GPUS=1 ./build/own_operation --device "$2" --dataset synthetic:1x8x8,4,64 --batch-size 16 \
    --optimizer adam --lr 0.01 --max-steps 8 --log-every 1 --run-dir "on-$2" >"$2.out" 2>&1) || { cat "$work/$1/$2.out" >&2; return 1; }
  losses=$(sed -n 's/^{"event":"step".*"loss":\([-0-9.e]*\),.*/\1/p' "$work/$1/on-$2/metrics.jsonl" | xargs printf '%.5f\n')
  [ "$(wc -l <<<"$losses")" -eq 8 ] || { echo "expected 8 losses, got: $losses" >&2; return 1; }
  echo "$losses"
}
# are_apart LOSSES LOSSES: whether two lists differ by more than 2e-5 somewhere.
are_apart() {
  paste <(echo "$1") <(echo "$2") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { exit !(most > 2e-5) }'
}
module=$work/prefix/lib/libdtrain_cuda_emulated.so
if [ -e "$module" ] && [[ $flags != *-fsanitize=* ]]; then
  make_own emulated -DEMULATED=ON ${DTRAIN_CUDA_INCLUDE:+-Ddtrain_CUDA_INCLUDE_DIR="$DTRAIN_CUDA_INCLUDE"}
  on_cpu=$(losses_of emulated cpu)
  on_gpu=$(losses_of emulated cuda)
  if are_apart "$on_cpu" "$on_gpu"; then
    printf '%s\n' "a kernel of the program's own: expected the losses of the CPU, got on the emulated GPU:" "$on_cpu" "$on_gpu"
    exit 1
  fi
  # The kernel is what computed them: another one gives others.
  mutation='s/rintf/floorf/' make_own wrong_kernel -DEMULATED=ON ${DTRAIN_CUDA_INCLUDE:+-Ddtrain_CUDA_INCLUDE_DIR="$DTRAIN_CUDA_INCLUDE"}
  wrong=$(losses_of wrong_kernel cuda)
  if ! are_apart "$on_cpu" "$wrong"; then
    echo "a program with a wrong kernel of its own: expected other losses, got those of the CPU"
    exit 1
  fi
  echo "a kernel of a program's own gives the CPU's losses on an emulated GPU"
else
  echo "no program with kernels of its own was built: no emulated machine in the package, or a sanitizer"
fi
if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
  make_own real -DCMAKE_CUDA_COMPILER="$nvcc"
  losses_of real cpu >/dev/null
  if cuobjdump=$(command -v "$(dirname "$nvcc")/cuobjdump"); then
    "$cuobjdump" --list-elf "$work/real/build/own_operation" | grep 'sm_90' ||
      { echo "expected code for sm_90 in the program that nvcc compiled, got none"; exit 1; }
  fi
else
  echo "no program was compiled by nvcc: there is none"
fi

# The guide's programs.
DTRAIN_CONSUMER_FLAGS=$flags bash "$source_root/tests/docs/guide.sh" "$cmake" "$work/prefix" "$compiler" "$generator" "$work/guide"

# The runtime alone needs only what it links, wherever everything else is missing.
mapfile -t hidden < <(hide Gloo OpenCL dnnl OpenSSL nlohmann_json)
configure alone -DCOMPONENTS=runtime "${hidden[@]}"
"$cmake" --build "$work/alone" --target consumer
"$work/alone/consumer"

# A component that was asked for and cannot be had is an error that names what is missing; one that nobody asked for
# is left out.
expect_refusal 'dtrain::cluster links OpenSSL, which was not found' -DCOMPONENTS=cluster "${hidden[@]}"
expect_refusal 'there is no component engine; there are: base runtime' -DCOMPONENTS=engine
configure some "${hidden[@]}" >"$work/some.log"
if ! grep -q 'linked whole: dtrain::runtime' "$work/some.log" || grep -q 'linked whole: dtrain::cluster' "$work/some.log"; then
  cat "$work/some.log"
  echo "expected dtrain::runtime and no dtrain::cluster where OpenSSL is missing"
  exit 1
fi

# And it must be this package that made it work: without it nothing configures.
expect_refusal 'package configuration file provided by "dtrain"' -DCMAKE_PREFIX_PATH="$work/empty"

# Internal headers stay at home.
if find "$work/prefix/include" -path '*/p2p/*' -o -path '*/device/cpu/*' -o -name '*_impl.h' | grep .; then
  echo "the headers above are internal (cmake/DtrainInstall.cmake) and were installed all the same"
  exit 1
fi
