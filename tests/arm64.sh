#!/usr/bin/env bash
# Builds dtrain for 64-bit ARM with Debian's cross compiler in a bare root, and runs unit tests under qemu's user
# emulation. Needs root, as tests/clean_room.sh does; nothing stays mounted, however it ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/arm64.sh [--dir DIR] [--tests REGEX] [--ccache DIR] [--jobs N]

  --dir DIR       where the root is made and kept, to try again in minutes (default: a new folder, removed at the end)
  --tests REGEX   the tests to build and run (default: the unit tests of kernels, tensors and data)
  --ccache DIR    compiles with this compiler cache
  --jobs N        compiles this many files, and runs this many tests, at a time (default: the number of CPUs)
TEXT
}

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
arguments=("$@")
dir='' tests='^unit_(base|tensor|device|workers|autograd|operations|nn|optim|checkpoint|data|pictures|tokens|collectives)$' cache='' jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --dir | --tests | --ccache | --jobs) [ $# -ge 2 ] || die "$1: expected a value" ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  case $1 in
    --dir) dir=$2 ;;
    --tests) tests=$2 ;;
    --ccache) cache=$(realpath "$2") ;;
    --jobs) jobs=$2 ;;
  esac
  shift 2
done
own_namespaces "${BASH_SOURCE[0]}" "${arguments[@]}"

keep=$([ -n "$dir" ] && echo yes || echo no)
own_folder "$dir" dtrain-arm64

# The libraries for ARM; tools run as they are here. Headers alone are the same everywhere.
libraries=(libfmt-dev zlib1g-dev libssl-dev libdnnl-dev ocl-icd-opencl-dev libgloo-dev libevent-dev libpcre2-dev
  libutf8proc-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libgtest-dev libgmock-dev)
if [ -e "$dir/root/ready" ]; then
  root=$dir/root
  mount_kernel_folders
else
  make_bare_root "$dir" "" ""
  mount_kernel_folders
  in_root dpkg --add-architecture arm64
  in_root apt-get -qq update
  say "installing the cross compiler, qemu and ${#libraries[@]} libraries for arm64"
  in_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends \
    cmake ninja-build g++-aarch64-linux-gnu pkg-config qemu-user git ca-certificates ccache python3 nlohmann-json3-dev \
    "${libraries[@]/%/:arm64}" >"$dir/apt.log" 2>&1 || { tail -n 20 "$dir/apt.log"; die "apt failed; its log is above"; }
  touch "$root/ready"
fi
# What has not changed keeps its time, so that little is built again.
clone=$root/root/dtrain
[ -e "$clone" ] || git clone --quiet --no-hardlinks --no-checkout "$repository" "$clone"
git -C "$clone" fetch --quiet "$repository" HEAD
git -C "$clone" reset --quiet --hard FETCH_HEAD
launcher=()
if [ -n "$cache" ]; then
  use_compiler_cache "$cache"
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

say "configuring $(git -C "$clone" rev-parse --short HEAD) for aarch64"
build=/root/dtrain/build/arm64
in_root cmake -S /root/dtrain -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDTRAIN_WERROR=ON -DDTRAIN_BUILD_TESTS=ON \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_CROSSCOMPILING_EMULATOR=/usr/bin/qemu-aarch64 \
  -DDTRAIN_WITH_MPI=OFF -DDTRAIN_WITH_CUDA=OFF "${launcher[@]}"
mapfile -t targets < <(in_root ctest --test-dir $build -N -R "$tests" | awk '/Test +#/ { print $3 }')  # named alike
[ ${#targets[@]} -gt 0 ] || die "no test matches '$tests'"
# The tests come first: they need a part of the tree, the programs need all of it.
say "building ${#targets[@]} test programs"
in_root ninja -C $build -j "$jobs" "${targets[@]}"
code=0
in_root env DTRAIN_TEST_EMULATOR=/usr/bin/qemu-aarch64 ctest --test-dir $build -R "$tests" --output-on-failure --parallel "$jobs" || code=$?
say "building dtrain and dtrain-launch"
in_root ninja -C $build -j "$jobs" dtrain dtrain-launch
in_root qemu-aarch64 $build/bin/dtrain --version
exit $code
