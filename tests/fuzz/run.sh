#!/usr/bin/env bash
# Runs every fuzz target for a while, --jobs at a time, from the seeds in the tree. Prints one line a target and the total
# number of executions; exit code 1 with a finding, whose input is left in build/fuzz/findings/. `pack` turns such files
# into lines for tests/fuzz/seeds/<target>.txt.
#
# usage: bash tests/fuzz/run.sh [--seconds N] [--jobs N] [--targets "a b"]
#          --seconds a target (default 60), --jobs targets side by side (default 1); needs clang 14 or newer
#        bash tests/fuzz/run.sh pack FILE…
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ "${1:-}" = pack ]; then
  shift
  exec python3 -c 'import sys
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    ends = (0, len(data) - 1)  # a space there would be lost or overlooked
    plain = lambda i, c: 32 <= c < 127 and c != 92 and not (c == 32 and i in ends)
    print("".join(chr(c) if plain(i, c) else f"\\x{c:02x}" for i, c in enumerate(data)))' "$@"
fi

seconds=60 jobs=1
targets="nodelist tasks_per_node config handshake frames store_messages rendezvous_messages rendezvous_session rendezvous_membership csv npy npz safetensors state shard_index idx hosts report server_messages server_table picture tar torch_store wds_index"
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    --jobs) jobs=$2 && shift 2 ;;
    --targets) targets=$2 && shift 2 ;;
    *) echo "run.sh: expected --seconds N, --jobs N or --targets \"a b\", got $1" >&2 && exit 2 ;;
  esac
done

compiler=$(command -v clang++-14 || command -v clang++) || { echo "no clang++ here (apt install clang)" && exit 77; }
build=build/fuzz
mkdir -p build
# Modules that are loaded at run time parse nothing from outside.
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" -DDTRAIN_FUZZ=ON \
  -DDTRAIN_WITH_MPI=OFF -DDTRAIN_WITH_CUDA=OFF -DDTRAIN_EMULATED_CUDA=OFF \
  -DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined" >$build.log 2>&1 || {
  tail -n 20 $build.log
  exit 1
}
# shellcheck disable=SC2086
ninja -C $build $(printf 'fuzz_%s ' $targets) >$build.log 2>&1 || {
  tail -n 20 $build.log
  exit 1
}

# unpack FILE FOLDER: one file for each line of FILE, its \xHH turned into bytes, as libFuzzer wants its seeds.
unpack() {
  local number=0 line
  rm -rf "$2" && mkdir -p "$2"
  while IFS= read -r line; do
    printf '%b' "$line" >"$2/$((number++))"
  done <"$1"
}

# fuzz TARGET: its line, or what it found.
fuzz() {
  local target=$1 corpus=$build/corpus/$1 seeds=$build/seeds/$1 log=$build/$1.log longest=1024 runs coverage
  mkdir -p "$corpus"
  unpack "tests/fuzz/seeds/$target.txt" "$seeds"
  [ "$target" != frames ] || longest=200  # every input is read byte by byte, and each byte costs an HMAC
  [ "$target" != tar ] || longest=8192    # an archive is made of blocks of 512 bytes
  if ! $build/tests/fuzz_"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=$longest \
    -artifact_prefix=$build/findings/"$target"- -print_final_stats=1 "$corpus" "$seeds" >"$log" 2>&1; then
    tail -n 30 "$log"
    echo "$target: FINDING; its input is in $build/findings/"
    return 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  printf '%-24s %10d executions, %6d edges, %4d inputs kept\n' "$target" "$runs" "$coverage" "$(find "$corpus" -type f | wc -l)"
  echo "$runs" >$build/"$target".executions
}

mkdir -p $build/findings
rm -f $build/*.executions
failed=0
for target in $targets; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
  [ $failed = 0 ] || break
  fuzz "$target" &
done
# shellcheck disable=SC2046
for job in $(jobs -p); do wait "$job" || failed=1; done
[ $failed = 0 ] || exit 1
echo "no finding in $(awk '{ total += $1 } END { print total }' $build/*.executions) executions"
