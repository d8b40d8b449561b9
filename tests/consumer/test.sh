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

"$cmake" -S "$here/project" -B "$work/build" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
"$cmake" --build "$work/build"
"$work/build/consumer"
"$work/build/everything"

# And it must be this package that made it work: without it nothing configures.
if "$cmake" -S "$here/project" -B "$work/wrong" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/empty" >/dev/null 2>&1; then
  echo "the project configured without the package: it does not test the package"
  exit 1
fi
