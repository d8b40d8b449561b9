#!/usr/bin/env bash
# What authentication and encryption of messages cost between two machines: all_reduce of 1 to 64 MiB over links of a
# given speed (hosts of the lab of network namespaces), and through loopback beside Gloo's own. Root.
#
#   bash tests/bench/allreduce/links.sh [RATE...]      default: 1gbit 5gbit
#
#   BENCH_ROUNDS   rounds a size (default 5)
# Needs a build with -DDTRAIN_BUILD_BENCHMARKS=ON.
set -euo pipefail

[ $# -gt 0 ] || set -- 1gbit 5gbit
root=$(cd "$(dirname "$0")/../../.." && pwd)
program=$(find "$root/build" -name bench_allreduce -type f -perm -u+x | head -1)
[ -n "$program" ] || { echo "bench_allreduce is not built: cmake --preset release -DDTRAIN_BUILD_BENCHMARKS=ON" >&2; exit 1; }

export DTRAIN_NETNS_LAB=mac$(($$ % 10000)) DTRAIN_LAB_OWNER=$$ BENCH_ROUNDS=${BENCH_ROUNDS:-5} BENCH_LINK
lab() { bash "$root/cluster/lab/netns.sh" "$@"; }
lab start 2 >/dev/null
folder=$(mktemp -d)
trap 'lab stop >/dev/null; rm -rf "$folder"' EXIT
DTRAIN_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export DTRAIN_TOKEN

"$program" tcp 2
port=29600
for rate; do
  for i in 0 1; do lab limit "h$i" "$rate"; done
  BENCH_LINK="tcp over a link of $rate,"
  mkdir "$folder/$rate"
  lab exec h1 "$program" rank 1 2 "$(lab address h0)" $port "$folder/$rate" &
  lab exec h0 "$program" rank 0 2 "$(lab address h0)" $port "$folder/$rate"
  wait $!
  port=$((port + 1))
done
