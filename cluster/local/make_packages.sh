#!/usr/bin/env bash
# Makes Debian packages and a wheel of the tree it lies in, the same bits from any folder, and prints their sizes and sums.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/local/make_packages.sh [--cuda] [--emulated-gpus] [--only deb|wheel] OUTPUT [-- CMAKE ARGUMENTS]

  --cuda            with the CUDA module: the package dtrain-cuda, and in the wheel; where no CUDA toolkit is
                    installed one comes from PyPI into build/tools (2 GB)
  --emulated-gpus   with the emulated CUDA machine: dtrain-emulated-gpus, and in the wheel
  --only WHAT       deb or wheel
  OUTPUT            a folder
  -- ARGUMENTS      for CMake, in both builds

SOURCE_DATE_EPOCH is the time that all files in a package have (default: the last commit's,
outside git that of CHANGELOG.md). Packages are the same where
compiler, libraries and this time are.
TEXT
}

# Debian's archives say the mode of their members, too.
umask 022
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/packages.sh
source "$root/cluster/local/packages.sh"
# shellcheck source=cluster/local/cuda.sh
source "$root/cluster/local/cuda.sh"

cuda=no emulated=OFF only='' output='' arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --cuda) cuda=yes; shift ;;
    --emulated-gpus) emulated=ON; shift ;;
    --only) only=${2:?"--only: expected deb or wheel"}; shift 2 ;;
    --) shift; arguments=("$@"); break ;;
    -*) usage >&2; die "unknown argument '$1'" ;;
    *) [ -z "$output" ] || die "expected one OUTPUT, got '$output' and '$1'"; output=$1; shift ;;
  esac
done
[ -n "$output" ] || { usage >&2; die "expected OUTPUT, a folder"; }
case $only in '' | deb | wheel) ;; *) die "--only: expected deb or wheel, got '$only'" ;; esac
mkdir -p "$output"
output=$(cd "$output" && pwd)

need_packages "${build_packages[@]}" dpkg-dev python3 -- "${build_extras[@]}"
cuda_settings=(-DDTRAIN_WITH_CUDA=OFF)
[ "$cuda" = no ] || need_cuda "$root"
arguments=("${cuda_settings[@]}" "-DDTRAIN_EMULATED_CUDA=$emulated" "${arguments[@]}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date -r "$root/CHANGELOG.md" +%s)}
export SOURCE_DATE_EPOCH
cd "$root"
find_cmake "$root"

if [ "$only" != wheel ]; then
  cmake --preset package "${arguments[@]}" >/dev/null
  say "building with $(nproc) jobs in build/package"
  cmake --build --preset package --parallel "$(nproc)"
  cpack --config build/package/CPackConfig.cmake -B build/package/cpack
  cp build/package/cpack/*.deb "$output/"
fi
if [ "$only" != deb ]; then
  need_python "$root" wheel 'scikit-build-core>=0.10' pip wheel
  say "building the wheel in build/wheel"
  # --no-build-isolation: with the tools above, whose version is known.
  printf -v defines '%s;' "${arguments[@]}"
  with_cuda=OFF
  [ "$cuda" = no ] || with_cuda=ON
  DTRAIN_WITH_CUDA=$with_cuda DTRAIN_EMULATED_CUDA=$emulated SKBUILD_CMAKE_ARGS=${defines%;} "$root/build/tools/wheel/bin/pip" wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir "$output" "$root"
fi
cd "$output"
for package in *.deb *.whl; do
  [ -e "$package" ] || continue
  say "$(sha256sum "$package" | cut -c1-16)  $(du -k "$package" | cut -f1) KiB  $package"
done
