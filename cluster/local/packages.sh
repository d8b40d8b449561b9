# shellcheck shell=bash disable=SC2034
# What quickstart.sh and tests/run.sh share: which packages dtrain needs, and how the missing ones get here.
# Sourced by bash with `set -euo pipefail` on; `need_packages` costs one dpkg-query when nothing is missing.

# Without these nothing builds or trains.
build_packages=(cmake ninja-build g++ nlohmann-json3-dev libfmt-dev zlib1g-dev libssl-dev)
# Built in where they are found; configure says what is lost without each. (Debian's oneDNN cannot be found by CMake
# without OpenCL's headers.)
build_extras=(libdnnl-dev ocl-icd-opencl-dev libgloo-dev libopenmpi-dev openmpi-bin libevent-dev
  libpcre2-dev libutf8proc-dev libjpeg62-turbo-dev libpng-dev libwebp-dev dataset-fashion-mnist)
# The one-machine labs of cluster/lab; their tests are skipped without.
lab_packages=(munge slurmctld slurmd slurm-client iproute2 openssh-client libwrap0)
# A browser without a window, for the tests of pages; they are skipped without.
browser_packages=(chromium-headless-shell)
# The documentation as a site; its test is skipped without.
site_packages=(mkdocs doxygen)
test_packages=(libgtest-dev libgmock-dev python3)

say() { printf '==> %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo -- "$@"
  else die "needs root to run: $*; run it as root, or install sudo"
  fi
}

# Prints those of the named packages that are not installed, one a line.
missing_of() {
  local installed
  installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p') || true
  printf '%s\n' "$@" | grep -vxF -e "$installed" || true
}

# True when apt's lists have every named package (a virtual or unknown name has no candidate).
apt_knows() {
  local package policy
  for package in "$@"; do
    policy=$(apt-cache policy "$package" 2>/dev/null) || return 1
    grep -q '^  Candidate: [^(]' <<<"$policy" || return 1
  done
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y \
    --no-install-recommends "$@" >/dev/null
}

# Set by need_packages when it installed something: what was configured without it must be configured again.
packages_changed=no

# need_packages REQUIRED… [-- OPTIONAL…]: installs what is missing. An optional package that this release does not
# have is skipped with a line; a required one ends the script.
need_packages() {
  local required=() optional=() missing=() package
  while [ $# -gt 0 ] && [ "$1" != -- ]; do required+=("$1"); shift; done
  [ $# -eq 0 ] || { shift; optional=("$@"); }

  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu system: install these by hand if configuring fails: ${required[*]} ${optional[*]}"
    return
  fi
  mapfile -t missing < <(missing_of "${required[@]}" "${optional[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0

  if ! apt_knows "${missing[@]}"; then
    say "refreshing apt's package lists"
    as_root apt-get -qq update
  fi
  local wanted=()
  for package in "${missing[@]}"; do
    if apt_knows "$package"; then
      wanted+=("$package")
    elif grep -qxF "$package" <<<"$(printf '%s\n' "${required[@]}")"; then
      die "apt has no package '$package' (on Ubuntu: is the 'universe' component enabled?)"
    else
      say "this release has no package '$package'; continuing without it"
    fi
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  say "installing with apt: ${wanted[*]}"
  if ! apt_install "${wanted[@]}"; then
    say "that failed; refreshing apt's package lists and trying once more"
    as_root apt-get -qq update
    apt_install "${wanted[@]}"
  fi
  packages_changed=yes
}

cmake_is_new_enough() {
  local version
  version=$("$1" --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p') || return 1
  [ -n "$version" ] && [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n1)" = 3.25 ]
}

# find_cmake ROOT: puts a CMake of at least 3.25 first on PATH. Where the system's is older (Ubuntu 22.04) one comes
# from PyPI into ROOT/build/tools.
find_cmake() {
  local tools=$1/build/tools
  if cmake_is_new_enough cmake; then return; fi
  if ! cmake_is_new_enough "$tools/bin/cmake"; then
    need_packages python3-venv
    say "CMake here is older than 3.25: installing a newer one from PyPI into $tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'cmake>=3.25,<4'
  fi
  PATH=$tools/bin:$PATH
}

# need_python ROOT NAME PACKAGES…: ROOT/build/tools/NAME, a Python environment with these packages from PyPI. Where that
# fails, tests that need it are skipped and say so.
need_python() {
  local tools=$1/build/tools/$2
  shift 2
  [ ! -f "$tools/.complete" ] || return 0
  need_packages python3-venv
  say "installing from PyPI into $tools: $*"
  if python3 -m venv "$tools" && "$tools/bin/pip" install --quiet "$@"; then
    touch "$tools/.complete"
  else
    say "that failed; continuing without"
  fi
}

# need_unpacked ROOT PACKAGE: ROOT/build/tools/PACKAGE, the files of a package whose installation would start a daemon on
# this machine. Where that fails, tests that need it are skipped and say so.
need_unpacked() {
  local tools=$1/build/tools/$2
  [ ! -f "$tools/.complete" ] || return 0
  command -v dpkg-query >/dev/null || return 0
  say "unpacking $2 into $tools"
  mkdir -p "$tools"
  if (cd "$tools" && apt-get -qq download "$2" && dpkg -x ./*.deb . && rm ./*.deb); then
    touch "$tools/.complete"
  else
    say "that failed; continuing without"
  fi
}

# build_preset ROOT PRESET [CACHE ENTRIES…]: configures once (later runs leave that to ninja) and builds with all
# cores. The cache entries are for the first time only: a developer's own settings stay.
build_preset() {
  local root=$1 preset=$2
  shift 2
  cd "$root" || return
  find_cmake "$root"
  if [ "$packages_changed" = yes ] || [ ! -f "build/$preset/build.ninja" ]; then
    say "configuring build/$preset"
    [ ! -f "build/$preset/CMakeCache.txt" ] || set --
    cmake --preset "$preset" "$@"
  fi
  say "building with $(nproc) jobs"
  cmake --build --preset "$preset" --parallel "$(nproc)"
}
