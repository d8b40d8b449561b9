#!/usr/bin/env bash
# Two ranks on one GPU without a launcher; rank 1 is killed, or stands still from then on. Rank 0 must end by itself with
# PeerError (exit code 4) within the deadline of 10 s and a margin, naming the rank, the operation and the call's number.
# run.sh exports bin, data, here and logs.
#
# usage: killed_rank.sh on|off [KILL|STOP] [running|connecting|recording]
#   on|off      whether steps are recorded as a graph
#   running     in mid-run; connecting: before the first collective; recording: while the fourth step is recorded
set -uo pipefail
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29655}
graph=$1
signal=${2:-KILL}
moment=${3:-running}
name=killed-$graph-$signal-$moment
pids=()
# The first collective connects the ranks, under the same limit as any other.
connect=60
every=20
[ "$moment" = running ] || every=1
[ "$moment" != connecting ] || connect=10
lines() { wc -l 2>/dev/null <"$logs/run-$name/metrics.jsonl" || echo 0; }
is_there() {
  case $moment in
    running) [ "$(lines)" -gt 3 ] ;;
    connecting) grep -qs libdtrain_cuda "/proc/${pids[1]}/maps" ;; # it has its GPU's module, and no peers yet
    recording) [ "$(lines)" -gt 0 ] ;; # the first step's line; three run as they come
  esac
}
start() {
  RANK=$1 LOCAL_RANK=$1 "$here/own_host.sh" "$bin/dtrain" train --device cuda --backend nccl --data-dir "$data" \
    --model lenet --global-batch-size 128 --max-steps 1000000 --eval-every 0 --checkpoint-every 0 \
    --cuda-graph "$graph" --collective-timeout 10 --connect-timeout "$connect" --log-every "$every" \
    --run-dir "$logs/run-$name" >"$logs/$name-$1.log" 2>&1 &
  pids+=($!)
}
rm -rf "$logs/run-$name"
start 0
start 1
pause=0.2
[ "$moment" = running ] || pause=0.01
began=$SECONDS
until is_there; do
  [ $((SECONDS - began)) -lt 60 ] || { echo "the moment '$moment' never came"; kill -9 "${pids[@]}"; exit 1; }
  sleep "$pause"
done
trap 'kill -9 "${pids[@]}" 2>/dev/null' EXIT
kill "-$signal" "${pids[1]}" || exit 1
began=$(date +%s.%N)
timeout 60 tail --pid="${pids[0]}" -f /dev/null || { kill -9 "${pids[0]}"; echo "rank 0 did not end"; exit 1; }
wait "${pids[0]}"
code=$?
took=$(python3 -c "import time; print(f'{time.time() - $began:.1f}')")
line=$(grep -m1 -E 'rank' "$logs/$name-0.log" | tail -c 300)
echo "$line"
[ "$code" -eq 4 ] || { echo "expected exit code 4, got $code"; exit 1; }
# Before there was a call there is none to name.
says='all_reduce.*#[0-9]+.*rank 1'
[ "$moment" != connecting ] || says='rank 1'
# One that stands still in a call that it has made is known by the next call only, which rank 0 may not come to.
[ "$signal-$moment" != STOP-running ] || says='all_reduce.*#[0-9]+'
grep -qE "$says" "$logs/$name-0.log" || { echo "the error does not say '$says'"; exit 1; }
python3 -c "import sys; sys.exit(0 if $took <= 30 else 1)" || { echo "took $took s, expected at most 30"; exit 1; }
echo "rank 0 ended with code 4 after $took s"
