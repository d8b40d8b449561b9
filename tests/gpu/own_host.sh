#!/usr/bin/env bash
# Lets several NCCL ranks share one GPU: NCCL refuses that within one host, so each rank claims a host of its own.
#
# usage: own_host.sh PROGRAM [ARGUMENTS]
set -euo pipefail
export NCCL_HOSTID="test-host-${RANK:-0}" NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo
exec "$@"
