#!/usr/bin/env bash
# Several hosts on this one machine: network namespaces with an address, a host name and a link of their own, joined by
# a switch in one more namespace. The machine's own network and /etc stay as they are; files are shared by all hosts.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/lab/netns.sh start N                  hosts h0 ... h<N-1>, addresses 10.77.0.1 ... (default 2)
       bash cluster/lab/netns.sh exec HOST COMMAND...     run COMMAND on HOST (by exec: signals reach the command)
       bash cluster/lab/netns.sh address HOST             print its address
       bash cluster/lab/netns.sh cut HOST [in|out|both]   both (default): as if the cable were pulled
                                                          in, out: packets of one direction vanish
       bash cluster/lab/netns.sh limit HOST RATE          slow its link down, both ways, to e.g. 10gbit
       bash cluster/lab/netns.sh heal HOST                undo every cut and limit
       bash cluster/lab/netns.sh kill HOST                kill -9 everything that runs on HOST
       bash cluster/lab/netns.sh status                   the hosts, their cuts, how many processes each has
       bash cluster/lab/netns.sh stop                     end what runs on the hosts, remove them

    bash cluster/lab/netns.sh start 2
    for i in 0 1; do
      bash cluster/lab/netns.sh exec h$i dtrain-launch --nnodes=2 --node_rank=$i --master_addr=10.77.0.1 \
        --master_port=29500 --nproc_per_node=2 hostname &
    done; wait

Hosts know each other by name. Needs root (directly or through sudo). Start when it runs already changes nothing.

  DTRAIN_NETNS_LAB   the lab's name (default dtlab), at most 8 letters and digits; one name, one lab
  DTRAIN_LAB_OWNER   a process id: the lab ends itself when that process has ended
TEXT
}

die() { printf 'netns.sh: %s\n' "$*" >&2; exit 1; }
say() { printf '==> %s\n' "$*"; }
PATH=$PATH:/usr/sbin:/sbin

lab=${DTRAIN_NETNS_LAB:-dtlab}
[[ $lab =~ ^[A-Za-z0-9]{1,8}$ ]] || die "DTRAIN_NETNS_LAB: expected at most 8 letters and digits, got '$lab'"
switch=$lab-switch
# Host names for the hosts: what exec shows as /etc/hosts.
hosts_file=/run/$lab-hosts

# Ends the lab when the process DTRAIN_LAB_OWNER has gone, however it went.
follow_owner() {
  [ -n "${DTRAIN_LAB_OWNER:-}" ] || return 0
  # shellcheck disable=SC2016
  setsid --fork bash -c 'tail --pid="$1" -f /dev/null; exec bash "$2" stop' follow_owner "$DTRAIN_LAB_OWNER" \
    "$(realpath "${BASH_SOURCE[0]}")" </dev/null >/dev/null 2>&1
}

need_root() {
  type ip tc >/dev/null 2>&1 || die "needs ip and tc: apt install iproute2"
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null || die "needs root; run it as root, or install sudo"
  exec sudo --preserve-env=DTRAIN_NETNS_LAB,PATH -- bash "${BASH_SOURCE[0]}" "$@"
}

count() { ip netns list 2>/dev/null | grep -cE "^$lab-h[0-9]+( |$)" || true; }

# host NAME: its number; h3 and 3 are the same.
host() {
  local number=${1#h}
  [[ $number =~ ^[0-9]+$ && -e /run/netns/$lab-h$number ]] ||
    die "no host '${1:-}'; expected one of h0 ... h$(($(count) - 1)) (is the lab started?)"
  echo "$number"
}

mac() { printf '02:00:00:4d:00:%02x' "$1"; }

# add_host NUMBER HOSTS
add_host() {
  local i=$1 hosts=$2 ns=$lab-h$1 other
  ip netns add "$ns"
  ip -n "$switch" link add "port$i" type veth peer name eth0 address "$(mac "$i")" netns "$ns"
  ip -n "$switch" link set "port$i" master switch0 up
  ip -n "$ns" link set lo up
  ip -n "$ns" address add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "$ns" link set eth0 up
  # Who has which address never needs asking, so a cut of one direction leaves the other alone.
  for ((other = 0; other < hosts; ++other)); do
    [ "$other" -eq "$i" ] || ip -n "$ns" neighbour add "10.77.0.$((other + 1))" lladdr "$(mac "$other")" dev eth0
  done
  echo "10.77.0.$((i + 1)) h$i" >>"$hosts_file"
}

start() {
  local hosts=${1:-2} i
  [[ $hosts =~ ^[1-9][0-9]?$ ]] || die "start: expected N from 1 to 99, got '$hosts'"
  if [ "$(count)" -eq "$hosts" ]; then say "already running: $hosts hosts"; return; fi
  [ "$(count)" -eq 0 ] || die "a lab '$lab' of $(count) hosts runs; stop it first, or choose another DTRAIN_NETNS_LAB"
  ip netns add "$switch" || die "this kernel or container has no network namespaces for us"
  trap stop ERR
  ip -n "$switch" link add switch0 type bridge forward_delay 0
  ip -n "$switch" link set switch0 up
  echo "127.0.0.1 localhost" >"$hosts_file"
  for ((i = 0; i < hosts; ++i)); do add_host "$i" "$hosts"; done
  trap - ERR
  wait_for_links "$hosts"
  follow_owner
  say "$hosts hosts: h0 (10.77.0.1) ... h$((hosts - 1)) (10.77.0.$hosts)"
}

# A port takes a moment to forward; a program that starts at once should not have to try twice.
wait_for_links() {
  local tries
  for ((tries = 0; tries < 100; ++tries)); do
    [ "$(ip -n "$switch" -d link show type bridge_slave | grep -c 'state forwarding')" -lt "$1" ] || return 0
    sleep 0.05
  done
  die "the links did not come up within 5 s"
}

# Everything the first packet over this qdisc could be is larger than its bucket of one byte, so all are dropped.
drop_all() { ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate 8bit burst 1 limit 1; }

cut() {
  local i
  i=$(host "${1:-}")
  case ${2:-both} in
    both) ip -n "$switch" link set "port$i" down ;;
    out) drop_all "$lab-h$i" eth0 ;;
    in) drop_all "$switch" "port$i" ;;
    *) die "cut: expected in, out or both, got '$2'" ;;
  esac
}

# Packets queue for up to 50 ms, as in a switch, then the newest are dropped.
limit() {
  local i rate=${2:-}
  i=$(host "${1:-}")
  [[ $rate =~ ^[1-9][0-9]*[kmg]bit$ ]] || die "limit: expected a rate like 10gbit or 500mbit, got '$rate'"
  ip netns exec "$lab-h$i" tc qdisc replace dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
  ip netns exec "$switch" tc qdisc replace dev "port$i" root tbf rate "$rate" burst 256kb latency 50ms
}

heal() {
  local i
  i=$(host "${1:-}")
  ip netns exec "$lab-h$i" tc qdisc del dev eth0 root 2>/dev/null || true
  ip netns exec "$switch" tc qdisc del dev "port$i" root 2>/dev/null || true
  ip -n "$switch" link set "port$i" up
}

# end_all SIGNAL PIDS: once; those that have ended meanwhile are no error.
end_all() {
  # shellcheck disable=SC2086
  [ -z "$2" ] || kill -s "$1" $2 2>/dev/null || true
}

kill_host() {
  local i tries pids
  i=$(host "${1:-}")
  for ((tries = 0; tries < 20; ++tries)); do
    pids=$(ip netns pids "$lab-h$i")
    [ -n "$pids" ] || return 0
    end_all KILL "$pids"
    sleep 0.01
  done
}

# What runs in the network namespace with this inode number, which need not have a name any more.
pids_in() { find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:\[$1\]" 2>/dev/null | awk -F/ '{ print $3 }'; }

# remove NAMESPACE: its name goes first, so that no command enters it while what runs there is ended; the open
# descriptor keeps the namespace, and so its inode number, until all of that is gone.
remove() {
  local held inode tries pids
  exec {held}<"/run/netns/$1"
  inode=$(stat -Lc %i "/run/netns/$1")
  ip netns del "$1"
  for ((tries = 0; tries < 40; ++tries)); do
    pids=$(pids_in "$inode") || true
    [ -n "$pids" ] || break
    if ((tries == 0)); then end_all TERM "$pids"; elif ((tries >= 20)); then end_all KILL "$pids"; fi
    sleep 0.05
  done
  exec {held}<&-
}

stop() {
  local ns
  for ns in $(ip netns list | awk -v lab="$lab" '$1 ~ "^" lab "-(h[0-9]+|switch)$" { print $1 }'); do
    remove "$ns"
  done
  rm -f "$hosts_file"
  say "stopped"
}

state_of() {
  local i=$1 state=""
  ip -n "$switch" link show "port$i" | grep -q '[<,]UP[,>]' || state+=" both"
  ip netns exec "$lab-h$i" tc qdisc show dev eth0 | grep -q 'tbf.*rate 8bit' && state+=" out"
  ip netns exec "$switch" tc qdisc show dev "port$i" | grep -q 'tbf.*rate 8bit' && state+=" in"
  echo "${state:+cut:$state}"
}

status() {
  local hosts i
  hosts=$(count)
  [ "$hosts" -gt 0 ] || die "no lab '$lab' runs"
  for ((i = 0; i < hosts; ++i)); do
    echo "h$i 10.77.0.$((i + 1)) $(ip netns pids "$lab-h$i" | wc -l) processes $(state_of "$i")"
  done
}

# In its own mount and name space the command finds the lab's names in /etc/hosts and its host's name in hostname.
# shellcheck disable=SC2016
run_on() {
  local i
  i=$(host "${1:-}")
  shift
  [ $# -gt 0 ] || die "exec: expected a command after the host"
  exec nsenter --net="/run/netns/$lab-h$i" unshare --uts --mount bash -c \
    'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"' netns.sh "h$i" "$hosts_file" "$@"
}

case ${1:-} in
  start | stop | cut | limit | heal | kill | status | exec) need_root "$@" ;;
esac
case ${1:-} in
  start) shift; start "$@" ;;
  stop) stop ;;
  cut) shift; cut "$@" ;;
  limit) shift; limit "$@" ;;
  heal) shift; heal "$@" ;;
  kill) shift; kill_host "$@" ;;
  status) status ;;
  exec) shift; run_on "$@" ;;
  address) echo "10.77.0.$(($(host "${2:-}") + 1))" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
