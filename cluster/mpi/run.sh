#!/usr/bin/env bash
# dtrain under Open MPI, from a hostfile. MPI says who and where; ssh between the hosts (or a batch system) is MPI's affair.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash cluster/mpi/run.sh [--hostfile FILE] launchers|ranks [ARGUMENTS OF dtrain train]

  launchers   mpirun starts one dtrain-launch a host, which starts as many workers as the host has slots; they talk over Gloo
  ranks       every worker is an MPI rank; they talk over MPI itself

  --hostfile FILE   default: the one beside this script
  DTRAIN_BIN        where dtrain and dtrain-launch are, the same on all hosts (default: from PATH)
TEXT
}

hostfile=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/hostfile
while [ $# -gt 0 ]; do
  case $1 in
    --hostfile) hostfile=${2:?"--hostfile: expected a file"}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) break ;;
  esac
done
how=${1:-}
[ $# -eq 0 ] || shift
bin=${DTRAIN_BIN:+$DTRAIN_BIN/}

# The job's secret, handed on by mpirun; not on the command line.
if [ -z "${DTRAIN_TOKEN:-}" ]; then
  DTRAIN_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
  export DTRAIN_TOKEN
fi
# Binding to cores strangles loader threads.
options=(--hostfile "$hostfile" --bind-to none -x DTRAIN_TOKEN)
case $how in
  launchers)
    hosts=$(grep -cvE '^[[:space:]]*(#|$)' "$hostfile")
    # Hosts with the same number of slots: for uneven ones set DTRAIN_NPROC_PER_NODE on each.
    slots=$(sed -n 's/^[^#]*slots=\([0-9]*\).*/\1/p' "$hostfile" | head -n1)
    exec mpirun "${options[@]}" -np "$hosts" --map-by ppr:1:node \
      "${bin}dtrain-launch" "--nproc_per_node=${DTRAIN_NPROC_PER_NODE:-${slots:-1}}" dtrain train "$@"
    ;;
  ranks) exec mpirun "${options[@]}" "${bin}dtrain" train "$@" ;;
  *) usage >&2; exit 2 ;;
esac
