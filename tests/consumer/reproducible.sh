#!/usr/bin/env bash
# Builds packages twice from the last commit, in two folders, the second time without a compiler cache, in another time zone
# and with another umask, and compares them bit for bit. Takes two builds, so it is run by hand.
#
# usage: bash tests/consumer/reproducible.sh FOLDER OTHER_FOLDER [ARGUMENTS OF make_packages.sh]    (neither exists yet)
#
# The packages stay in FOLDER/out and OTHER_FOLDER/out.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { printf 'reproducible.sh: %s\n' "$*" >&2; exit 1; }
[ $# -ge 2 ] || die "usage: reproducible.sh FOLDER OTHER_FOLDER [ARGUMENTS OF make_packages.sh]"
first=$1 second=$2
shift 2
for folder in "$first" "$second"; do
  [ ! -e "$folder" ] || die "$folder: exists already; name a folder that can be made"
  git clone --quiet --no-hardlinks "$repository" "$folder/source"
done

begin=$SECONDS
bash "$first/source/cluster/local/make_packages.sh" "$first/out" "$@"
middle=$SECONDS
(
  umask 077
  export CCACHE_DISABLE=1 TZ=Asia/Kathmandu LC_ALL=C
  bash "$second/source/cluster/local/make_packages.sh" "$second/out" "$@"
)
echo "reproducible.sh: $((middle - begin)) s and $((SECONDS - middle)) s"

# unpack PACKAGE FOLDER: its files, to say which differ.
unpack() {
  mkdir -p "$2"
  case $1 in
    *.deb) dpkg-deb -R "$1" "$2" ;;
    *.whl) python3 -m zipfile -e "$1" "$2" ;;
  esac
}

differ=0 compared=0
for package in "$first"/out/*; do
  name=${package##*/}
  compared=$((compared + 1))
  if cmp -s "$package" "$second/out/$name"; then
    echo "same       $(sha256sum "$package" | cut -c1-64)  $name"
    continue
  fi
  differ=1
  echo "DIFFERENT  $name"
  [ -e "$second/out/$name" ] || continue
  unpack "$package" "$first/unpacked/$name"
  unpack "$second/out/$name" "$second/unpacked/$name"
  diff -rq "$first/unpacked/$name" "$second/unpacked/$name" || true
done
[ "$compared" -gt 0 ] || die "$first/out: expected packages, got none"
[ "$differ" -eq 0 ] || die "two builds of one commit differ; the files above are in the unpacked folders beside out"
