#!/usr/bin/env bash
# all_reduce on several hosts (of the lab of network namespaces) with several ranks each, directly and in two levels,
# in turns: times, and the bytes that leave a host against 2(h-1)/h of the data. Root. With more ranks than cores the
# times are those of an oversubscribed machine; the bytes are exact in any case.
#
#   bash tests/bench/allreduce/hosts.sh [HOSTSxRANKS@RATE...]      default: 2x4@1gbit 4x4@1gbit 2x4@5gbit 4x4@5gbit
#
#   BENCH_ROUNDS   rounds a size (default 5)
#   BENCH_SIZES    bytes (default: 1 KiB to 64 MiB in steps of 4)
# Needs a build with -DDTRAIN_BUILD_BENCHMARKS=ON.
set -euo pipefail

[ $# -gt 0 ] || set -- 2x4@1gbit 4x4@1gbit 2x4@5gbit 4x4@5gbit
root=$(cd "$(dirname "$0")/../../.." && pwd)
program=${BENCH_PROGRAM:-$(find "$root/build" -name bench_allreduce -type f -perm -u+x | head -1)}
[ -n "$program" ] || { echo "bench_allreduce is not built: cmake --preset release -DDTRAIN_BUILD_BENCHMARKS=ON" >&2; exit 1; }

export DTRAIN_NETNS_LAB=hst$(($$ % 10000)) DTRAIN_LAB_OWNER=$$ BENCH_ROUNDS=${BENCH_ROUNDS:-5} BENCH_LINK
lab() { bash "$root/cluster/lab/netns.sh" "$@"; }
trap 'lab stop >/dev/null 2>&1 || true' EXIT
DTRAIN_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export DTRAIN_TOKEN
port=29700

for case; do
  [[ $case =~ ^([1-9][0-9]*)x([1-9][0-9]*)@([1-9][0-9]*[kmg]bit)$ ]] ||
    { echo "hosts.sh: expected HOSTSxRANKS@RATE, got '$case'" >&2; exit 2; }
  hosts=${BASH_REMATCH[1]} ranks=${BASH_REMATCH[2]} rate=${BASH_REMATCH[3]}
  lab start "$hosts" >/dev/null
  for ((i = 0; i < hosts; ++i)); do lab limit "h$i" "$rate"; done
  BENCH_LINK="$hosts hosts x $ranks ranks, links of $rate,"
  pids=()
  for ((rank = hosts * ranks - 1; rank > 0; --rank)); do
    lab exec "h$((rank / ranks))" "$program" hosts "$rank" $((hosts * ranks)) "$ranks" "$(lab address h0)" $port &
    pids+=($!)
  done
  lab exec h0 "$program" hosts 0 $((hosts * ranks)) "$ranks" "$(lab address h0)" $port
  wait "${pids[@]}"
  lab stop >/dev/null
  port=$((port + 1))
done
