#!/usr/bin/env bash
# Builds the image of cluster/container/Dockerfile without a daemon and without a registry: buildah, in a chroot, on a base
# that debootstrap makes. Then runs a quick start in it, and prints seconds and sizes. Needs root. Images are kept in a
# folder of their own; nothing else of the machine's is touched.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/container/build.sh [--cuda] [--packages DIR] [--dir DIR] [--suite SUITE] [--mirror URL]
                                       [--ccache DIR] [-- COMMAND…]

  --cuda         with the CUDA module, and NVIDIA's libraries from PyPI (1 GB)
  --packages DIR Debian packages that make_packages.sh has made, in place of building them in the image
  --dir DIR      where images are kept (default: a new folder under /var/tmp, removed at the end)
  --suite SUITE  the base's release (default bookworm)
  --mirror URL   where its packages are (default: this machine's own apt source for that suite)
  --ccache DIR   compile with this compiler cache (its base_dir must be /src), to try the file again in minutes
  -- COMMAND…    what to run in the image (default: two workers train LeNet for an epoch)
TEXT
}

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
cuda=no packages='' dir='' suite=bookworm mirror='' cache=''
command=(dtrain-launch --nproc_per_node=2 dtrain train --model lenet --dataset fashion-mnist --epochs 1)
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --) shift; command=("$@"); break ;;
    --cuda) cuda=yes; shift; continue ;;
    --packages | --dir | --suite | --mirror | --ccache) [ $# -ge 2 ] || die "$1: expected a value" ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  case $1 in
    --packages) packages=$(cd "$2" && pwd) ;;
    --dir) dir=$2 ;;
    --suite) suite=$2 ;;
    --mirror) mirror=$2 ;;
    --ccache) cache=$(cd "$2" && pwd) ;;
  esac
  shift 2
done
[ "$(id -u)" -eq 0 ] || die "needs root: debootstrap and buildah's chroot do"
need_packages buildah debootstrap

scratch=$(mktemp -d /var/tmp/dtrain-container.XXXXXX)
trap 'rm -rf --one-file-system "$scratch"' EXIT
storage=${dir:-$scratch/storage}
mkdir -p "$storage"
# vfs copies whole folders: slow, but it works in any file system and in containers.
builder() { buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs "$@"; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }'; }
size_of() { builder images --format '{{.Size}}' "$1"; }

begin=$EPOCHREALTIME
make_bare_root "$scratch" "$suite" "$mirror" "ca-certificates${cache:+,ccache}"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
# A file, since variables given to buildah do not reach what a build runs.
[ -z "$cache" ] || printf 'cache_dir = /ccache\nbase_dir = /src\nhash_dir = false\nsloppiness = locale\n' >"$root/etc/ccache.conf"
container=$(builder from scratch)
builder add --quiet "$container" "$root" / >/dev/null
builder commit --quiet --rm "$container" localhost/base >/dev/null
rm -rf --one-file-system "$root"
say "the base, $suite by debootstrap: $(seconds_since "$begin"), $(size_of localhost/base)"

options=(--build-arg "CUDA=$cuda")
[ -z "$cache" ] || options+=(--volume "$cache:/ccache")
context=$repository
if [ -n "$packages" ]; then
  context=$scratch/context
  mkdir -p "$context/packages" "$context/cluster/container" "$context/cluster/local"
  cp "$packages"/dtrain_*.deb "$context/packages/"
  [ "$cuda" = no ] || cp "$packages"/dtrain-cuda_*.deb "$context/packages/"
  cp "$repository"/cluster/container/*.sh "$context/cluster/container/"
  cp "$repository"/cluster/local/*.sh "$context/cluster/local/"
  options+=(--build-arg PACKAGES=given)
else
  options+=(--build-arg "SOURCE_DATE_EPOCH=$(git -C "$repository" log -1 --format=%ct)")
fi
begin=$EPOCHREALTIME
builder bud --isolation chroot --build-arg BASE=localhost/base --build-arg FINAL_BASE=localhost/base "${options[@]}" \
  --file "$repository/cluster/container/Dockerfile" --tag localhost/dtrain "$context" >"$scratch/log" 2>&1 ||
  { tail -n 40 "$scratch/log"; die "the build failed; the end of its log is above"; }
say "the image: $(seconds_since "$begin"), $(size_of localhost/dtrain)"

container=$(builder from localhost/dtrain)
user=$(builder run --isolation chroot "$container" -- id -u)
[ "$user" = 10001 ] || die "expected the image's programs to run as user 10001, got $user"
if [ "$cuda" = yes ]; then
  # Without a GPU it is the driver that is missing, and not the module or a library of it.
  doctor=$(builder run --isolation chroot "$container" -- dtrain doctor 2>&1 || true)
  for library in cublaslt cudnn nccl; do
    grep -iE "^ok +$library " <<<"$doctor" || { echo "$doctor"; die "dtrain doctor: expected $library to be loaded"; }
  done
  grep -E '^(ok|note|BAD) +gpu ' <<<"$doctor" || die "dtrain doctor says nothing of GPUs"
fi
begin=$EPOCHREALTIME
say "in the image, as user $user: ${command[*]}"
builder run --isolation chroot "$container" -- "${command[@]}"
say "that took $(seconds_since "$begin")"
builder rm "$container" >/dev/null
