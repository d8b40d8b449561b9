#!/usr/bin/env bash
# A small Slurm cluster on this one machine: munge, slurmctld and several slurmd, with everything they keep in one
# folder. /etc/slurm, /etc/munge and whatever Slurm this machine may already have stay as they are.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/lab/slurm.sh start [NODES] [CPUS]   NODES nodes (default 2) of CPUS cores each (default 2)
       bash cluster/lab/slurm.sh run COMMAND...         run COMMAND against the lab: srun, sbatch, squeue, ...
       bash cluster/lab/slurm.sh env                    print what `eval` needs to do the same in this shell
       bash cluster/lab/slurm.sh status                 the nodes; exit code 0 when all are up
       bash cluster/lab/slurm.sh stop                   cancel its jobs, end its daemons, remove its folder

    bash cluster/lab/slurm.sh start 2 2
    bash cluster/lab/slurm.sh run srun -N2 -n4 hostname
    bash cluster/lab/slurm.sh stop

Nodes are called node1, node2, ...; all are this machine, so node names do not resolve. Debian's packages are installed
when missing (the only step that needs root or sudo). A requeued job starts again after 5 s. Start when it runs already
changes nothing.

A start that fails leaves nothing behind; its exit code is 69 where this machine lets no slurmd run (no control groups,
say), else 1.

  DTRAIN_SLURM_LAB   the lab's folder (default ${TMPDIR:-/tmp}/dtrain-slurm-<uid>); one folder, one lab
  DTRAIN_LAB_OWNER   a process id: the lab ends itself when that process has ended
TEXT
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=cluster/local/packages.sh
source "$here/../local/packages.sh"
PATH=$PATH:/usr/sbin:/sbin

lab=${DTRAIN_SLURM_LAB:-${TMPDIR:-/tmp}/dtrain-slurm-$(id -u)}
conf=$lab/slurm.conf
packages=(munge slurmctld slurmd slurm-client)

# Ends the lab when the process DTRAIN_LAB_OWNER has gone, however it went.
follow_owner() {
  [ -n "${DTRAIN_LAB_OWNER:-}" ] || return 0
  # shellcheck disable=SC2016
  setsid --fork bash -c 'tail --pid="$1" -f /dev/null; exec bash "$2" stop' follow_owner "$DTRAIN_LAB_OWNER" \
    "$(realpath "${BASH_SOURCE[0]}")" </dev/null >/dev/null 2>&1
}

# Runs a client or a daemon of the lab. Daemons carry DTRAIN_SLURM_LAB in their environment: that is how stop finds
# them, and only them.
in_lab() { env -u DTRAIN_LAB_OWNER DTRAIN_SLURM_LAB="$lab" SLURM_CONF="$conf" "$@"; }

# True when nobody listens on any of the COUNT ports from BASE on.
ports_are_free() {
  local base=$1 count=$2 taken port
  taken=$(awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null || true)
  for ((port = base; port < base + count; ++port)); do
    ! grep -qix "$(printf '%04X' "$port")" <<<"$taken" || return 1
  done
}

find_ports() {
  local base
  for ((base = 17000; base < 20000; base += 100)); do
    if ports_are_free "$base" "$(($1 + 1))"; then echo "$base"; return; fi
  done
  die "no $(($1 + 1)) free ports in a row between 17000 and 20000"
}

write_conf() {
  local nodes=$1 cpus=$2 base=$3 user
  user=$(id -un)
  cat >"$conf" <<TEXT
ClusterName=dtrain-lab
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$base
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job waits.
AuthInfo=socket=$lab/munge.socket,cred_expire=5
# Jobs find each other at a port that follows from their number: labs side by side must not count alike.
FirstJobId=$(((base - 17000) * 100 + 1))
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool.%n
SlurmctldPidFile=$lab/slurmctld.pid
SlurmdPidFile=$lab/slurmd.%n.pid
SlurmctldLogFile=$lab/slurmctld.log
SlurmdLogFile=$lab/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
MpiDefault=none
KillWait=5
PlugStackConfig=$lab/plugstack.conf
NodeName=node[1-$nodes] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + nodes))] CPUs=$cpus
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
  # A lab of one node: Slurm does not take a range of one.
  [ "$nodes" -gt 1 ] || sed -i "s/node\[1-1\]/node1/; s/Port=\[\([0-9]*\)-[0-9]*\]/Port=\1/" "$conf"
  : >"$lab/plugstack.conf"
}

# give_up CODE MESSAGE: ends what has been started, then says what the logs say.
give_up() {
  local code=$1 logs
  shift
  logs=$(grep -hE 'error|fatal' "$lab"/*.log 2>/dev/null | tail -n5; tail -qn3 "$lab"/*.out 2>/dev/null) || true
  stop >/dev/null
  printf 'slurm.sh: %s\n%s\n' "$*" "$logs" >&2
  exit "$code"
}

start_munge() {
  dd if=/dev/urandom of="$lab/munge.key" bs=128 count=1 status=none
  chmod 400 "$lab/munge.key"
  in_lab munged --force --socket="$lab/munge.socket" --key-file="$lab/munge.key" --pid-file="$lab/munged.pid" \
    --log-file="$lab/munged.log" --seed-file="$lab/munged.seed" --num-threads=2 >"$lab/munged.out" 2>&1 ||
    give_up 1 "munged did not start:"
}

nodes_up() { in_lab sinfo --noheader --Node --format='%N %t' 2>/dev/null | grep -cE ' (idle|mix|alloc|comp)$' || true; }

wait_for_nodes() {
  local nodes=$1 tries
  for ((tries = 0; tries < 150; ++tries)); do
    [ "$(nodes_up)" -lt "$nodes" ] || return 0
    sleep 0.2
  done
  in_lab sinfo --Node >&2 || true
  give_up 1 "the nodes did not come up within 30 s; from their logs:"
}

start() {
  local nodes=${1:-2} cpus=${2:-2} node
  [[ $nodes =~ ^[1-9][0-9]?$ && $cpus =~ ^[1-9][0-9]*$ ]] ||
    die "start: expected NODES from 1 to 99 and CPUS from 1 on, got '$nodes' and '$cpus'"
  if [ -f "$lab/shape" ]; then
    [ "$(cat "$lab/shape")" = "$nodes $cpus" ] ||
      die "a lab of $(cat "$lab/shape") (nodes, cpus) is in $lab; stop it first, or choose another DTRAIN_SLURM_LAB"
    if [ "$(nodes_up)" -eq "$nodes" ]; then say "already running: $lab"; return; fi
    stop
  fi
  need_packages "${packages[@]}"
  mkdir -p "$lab/state"
  chmod 755 "$lab"
  echo "$nodes $cpus" >"$lab/shape"
  write_conf "$nodes" "$cpus" "$(find_ports "$nodes")"
  follow_owner  # before there is anything to leave behind
  start_munge
  in_lab slurmctld -c >"$lab/slurmctld.out" 2>&1 || give_up 1 "slurmctld did not start:"
  for ((node = 1; node <= nodes; ++node)); do
    mkdir -p "$lab/spool.node$node"
    in_lab slurmd -N "node$node" >"$lab/slurmd.out" 2>&1 || give_up 69 "slurmd cannot run on this machine:"
  done
  wait_for_nodes "$nodes"
  say "Slurm with $nodes nodes of $cpus cores runs in $lab; try: bash cluster/lab/slurm.sh run sinfo"
}

# The lab's processes: those that have its mark (and, for jobs, its configuration) in their environment. The commands
# of this script have it too, hence the names.
lab_processes() {
  local process
  { grep -lzxF "DTRAIN_SLURM_LAB=$lab" /proc/[0-9]*/environ 2>/dev/null || true; } |
    while IFS=/ read -r _ _ process _; do
      case $(cat "/proc/$process/comm" 2>/dev/null) in
        munged | slurmctld | slurmd | slurmstepd | srun) echo "$process" ;;
      esac
    done
}

stop() {
  [ -d "$lab" ] || { say "no lab in $lab"; return; }
  [ -f "$lab/shape" ] || die "$lab is not a lab's folder; nothing was touched"
  local tries pids
  if [ "$(nodes_up)" -gt 0 ]; then
    in_lab scancel --user="$(id -un)" 2>/dev/null || true
    for ((tries = 0; tries < 50; ++tries)); do
      [ -n "$(in_lab squeue --noheader 2>/dev/null)" ] || break
      sleep 0.2
    done
  fi
  for ((tries = 0; tries < 50; ++tries)); do
    pids=$(lab_processes)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -s "$([ "$tries" -lt 25 ] && echo TERM || echo KILL)" $pids 2>/dev/null || true
    sleep 0.2
  done
  rm -rf "$lab"
  say "stopped; $lab is gone"
}

# One lab after the other, since a port that is free now is taken only when a daemon listens on it.
start_in_turn() {
  local lock="${XDG_RUNTIME_DIR:-/tmp}/dtrain-slurm-$(id -u).lock" code=0
  DTRAIN_SLURM_TURN=taken flock --close --timeout 120 --conflict-exit-code 75 "$lock" \
    bash "${BASH_SOURCE[0]}" start "$@" || code=$?
  [ "$code" -ne 75 ] || die "another lab has been starting for two minutes (it holds $lock); end it, then try again"
  exit "$code"
}

running() { [ -f "$lab/shape" ] || die "no lab runs in $lab; start one: bash cluster/lab/slurm.sh start"; }

case ${1:-} in
  start)
    shift
    [ -n "${DTRAIN_SLURM_TURN:-}" ] || start_in_turn "$@"
    start "$@"
    ;;
  stop) stop ;;
  status) running; in_lab sinfo --Node; [ "$(nodes_up)" -eq "$(cut -d' ' -f1 "$lab/shape")" ] ;;
  env) running; echo "export SLURM_CONF=$conf" ;;
  run)
    shift
    running
    [ $# -gt 0 ] || die "run: expected a command"
    SLURM_CONF=$conf exec "$@"
    ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
