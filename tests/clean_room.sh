#!/usr/bin/env bash
# Runs the README's two commands and the tutorial where nothing is installed: makes a bare Debian root with debootstrap,
# clones the repository into it and times both. Needs root; everything is mounted in a mount namespace of its own, so nothing
# can stay mounted here, however it ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/clean_room.sh [--dir DIR] [--suite SUITE] [--mirror URL] [--keep] [--quickstart ARGS] [--tests ARGS]
                                [--tutorial skip] [--ccache DIR]

  --dir DIR           where the root is made (default: a new folder under /var/tmp); it must not exist
  --suite SUITE       release to make (default: the one this machine runs, e.g. bookworm)
  --mirror URL        where its packages are (default: this machine's own apt source for that suite)
  --keep              leave the root there afterwards
  --quickstart ARGS   passed to cluster/local/quickstart.sh, e.g. --build-only; "skip" leaves it out
                      with --cuda in it, the CUDA module must have been built and load
  --tests ARGS        passed to tests/run.sh; "skip" leaves it out
  --tutorial skip     leaves docs/tutorial.md out
  --ccache DIR        compiles with this compiler cache (to try again in minutes; its base_dir is the clone)
TEXT
}

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
arguments=("$@")
dir='' suite='' mirror='' keep=no quickstart='' tests='' tutorial='' cache=''
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes; shift; continue ;;
    -h | --help) usage; exit 0 ;;
    --dir | --suite | --mirror | --quickstart | --tests | --tutorial | --ccache) [ $# -ge 2 ] || die "$1: expected a value" ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  case $1 in
    --dir) dir=$2 ;;
    --suite) suite=$2 ;;
    --mirror) mirror=$2 ;;
    --quickstart) quickstart=$2 ;;
    --tests) tests=$2 ;;
    --tutorial) tutorial=$2 ;;
    --ccache) cache=$(realpath "$2") ;;
  esac
  shift 2
done

own_namespaces "${BASH_SOURCE[0]}" "${arguments[@]}"

# timed NAME COMMAND…: sets seconds_<NAME> and code_<NAME>.
timed() {
  local name=$1 begin=$SECONDS code=0
  shift
  say "$*"
  in_root "$@" || code=$?
  printf -v "seconds_$name" '%s' $((SECONDS - begin))
  printf -v "code_$name" '%s' "$code"
}

[ -z "$dir" ] || [ ! -e "$dir" ] || die "--dir $dir: exists already; name a folder that can be made and removed"
own_folder "$dir" dtrain-clean-room
make_bare_root "$dir" "$suite" "$mirror" "${cache:+ccache}"
git clone --quiet --no-hardlinks "$repository" "$root/root/dtrain"
say "cloned $(git -C "$root/root/dtrain" rev-parse --short HEAD); $(du -sm "$root" | cut -f1) MB in all"
mount_kernel_folders
[ -z "$cache" ] || use_compiler_cache "$cache"
in_root sh -c '! command -v g++ cmake python3 mpirun' || die "the root is not bare"

code_quickstart=0 seconds_quickstart=- code_tutorial=0 seconds_tutorial=- code_tests=0 seconds_tests=-
# Both lists of arguments are meant to be split at spaces.
# shellcheck disable=SC2086
[ "$quickstart" = skip ] || timed quickstart bash /root/dtrain/cluster/local/quickstart.sh $quickstart
if [[ $quickstart == *--cuda* ]] && [ "$code_quickstart" -eq 0 ]; then
  in_root test -f /root/dtrain/build/release/lib/libdtrain_cuda.so || die "quickstart.sh --cuda built no CUDA module"
  # Without a GPU it is the driver that is missing, and not the module or a library of it.
  doctor=$(in_root /root/dtrain/build/release/bin/dtrain doctor 2>&1 || true)
  grep -E 'gpu|cuda|nccl|cudnn' -i <<<"$doctor"
  grep -qi 'driver' <<<"$doctor" || die "dtrain doctor does not say that the driver is missing"
  say "CUDA from PyPI: $(in_root du -sm /root/dtrain/build/tools/cuda | cut -f1) MB installed"
fi
[ "$tutorial" = skip ] || timed tutorial bash /root/dtrain/tests/docs/tutorial.sh
# shellcheck disable=SC2086
[ "$tests" = skip ] || timed tests bash /root/dtrain/tests/run.sh $tests

say "${suite:-own release}, $(nproc) cores, from nothing: quickstart.sh ${seconds_quickstart} s (exit code $code_quickstart);" \
  "the tutorial ${seconds_tutorial} s (exit code $code_tutorial); tests/run.sh ${seconds_tests} s (exit code $code_tests)"
[ "$code_quickstart" -eq 0 ] && [ "$code_tutorial" -eq 0 ] && [ "$code_tests" -eq 0 ]
