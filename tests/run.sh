#!/usr/bin/env bash
# Installs what the tests need, builds and runs all of them with ctest. The last line is the verdict; exit code 0
# only when every test passed.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/run.sh [--preset ci|asan|tsan|debug] [--filter REGEX] [--label REGEX] [--exclude REGEX]
                         [--jobs N] [--fault-rounds N]

  --preset P         what to build and test (default ci: optimised, warnings are errors)
  --filter REGEX     only tests whose name matches (ctest -R)
  --exclude REGEX    not those whose name matches (ctest -E)
  --label REGEX      only tests with a matching label: unit, ranks, launch, fault, package, … (ctest -L)
  --jobs N           tests that compute at a time (default 2), or three that mostly wait for each of them; tests
                     that need the machine alone run alone
  --fault-rounds N   kills per fault test; few by default so that the suite stays quick
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cluster/local/packages.sh
source "$root/cluster/local/packages.sh"

preset=ci
jobs=2
selection=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --preset | --filter | --exclude | --label | --jobs | --fault-rounds)
      [ $# -ge 2 ] || die "$1: expected a value" ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  case $1 in
    --preset) preset=$2 ;;
    --filter) selection+=(-R "$2") ;;
    --exclude) selection+=(-E "$2") ;;
    --label) selection+=(-L "$2") ;;
    --jobs) jobs=$2 ;;
    --fault-rounds) export DTRAIN_FAULT_ROUNDS=$2 ;;
  esac
  shift 2
done

# What the programs under test find in their environment.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export CTEST_OUTPUT_ON_FAILURE=1
suppressions=$root/tests/support
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$suppressions/lsan.supp:print_suppressions=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$suppressions/tsan.supp:second_deadlock_stack=1}

started=$SECONDS
say "dtrain tests: install what is missing, build preset $preset, run everything with ctest"
need_packages "${build_packages[@]}" "${test_packages[@]}" -- "${build_extras[@]}" "${lab_packages[@]}" "${browser_packages[@]}" "${site_packages[@]}"
need_python "$root" onnx onnx onnxruntime numpy  # exported networks run there, collectives are checked there
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  need_python "$root" sass nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump  # they read what nvcc makes
fi
if [ -z "${DTRAIN_SSHD:-}" ] && [ ! -e /usr/sbin/sshd ]; then
  need_unpacked "$root" openssh-server
  # From OpenSSH 9.8 on its server starts a program by a path that only an installation has.
  sshd=$root/build/tools/openssh-server/usr/sbin/sshd
  if [ -x "$sshd" ] && [ ! -e "${sshd%/sbin/sshd}/lib/openssh/sshd-session" ]; then export DTRAIN_SSHD=$sshd; fi
fi
build_preset "$root" "$preset"
say "built after $((SECONDS - started)) s; testing with $jobs tests at a time"

report=$root/build/$preset/tests.xml
rm -f "$report"
code=0
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 300 --parallel "$((3 * jobs))" \
  --output-junit "$report" "${selection[@]}" || code=$?

# count NAME: an attribute of the report's <testsuite>; ctest's skipped includes disabled tests.
count() { sed -n "0,/ $1=\"/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n1; }
if [ -f "$report" ]; then
  total=$(count tests) failed=$(count failures) skipped=$(count skipped)
  summary="$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
else
  summary="no test ran"
fi
verdict=PASSED
[ "$code" -eq 0 ] || verdict=FAILED
say "$verdict: $summary; preset $preset, $((SECONDS - started)) s; report in ${report#"$root"/}"
exit "$code"
