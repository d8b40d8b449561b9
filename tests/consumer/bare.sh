#!/usr/bin/env bash
# Installs the wheel and the Debian package where nothing else is: in bare roots made with debootstrap, without compiler,
# without MPI. Prints sizes and seconds of a PyTorch DDP script and a training run under the installed launcher. Needs root,
# and a wheel and a package that are made already, so it is run by hand:
#
#   bash tests/consumer/wheel.sh wheels && cpack --config build/release/CPackConfig.cmake -B wheels
#   bash tests/consumer/bare.sh wheels/dtrain-*.whl wheels/dtrain_*.deb
#
# DTRAIN_PEER_PYTHON  a Python that has torch, of the root's version: its site-packages are mounted there. Without one no
#                     PyTorch script is started.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
[ $# -eq 2 ] || die "usage: bare.sh WHEEL DEB"
wheel=$(realpath "$1") deb=$(realpath "$2")
own_namespaces "${BASH_SOURCE[0]}" "$wheel" "$deb"

own_folder "" dtrain-bare

# timed TEXT COMMAND…: runs it in the root and prints its seconds; its output only when it fails.
timed() {
  local text=$1 begin=$EPOCHREALTIME
  shift
  in_root "$@" >"$dir/output" 2>&1 || { cat "$dir/output"; die "$text: failed with exit code $?"; }
  printf '%8s s  %s\n' "$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')" "$text"
}
expect() { grep -qE "$1" "$dir/output" || { cat "$dir/output"; die "expected output that matches: $1"; }; }
expect_failure() {
  local pattern=$1
  shift
  if in_root "$@" >"$dir/output" 2>&1; then cat "$dir/output"; die "expected this to fail: $*"; fi
  expect "$pattern"
}
no_compiler() {
  in_root sh -c '! command -v gcc g++ c++ cmake mpirun' >/dev/null || die "the root has a compiler or MPI"
}

# mount_torch: the peer's packages at /opt/torch, known to /root/torch/bin/python (the launcher's python3).
mount_torch() {
  [ -n "${DTRAIN_PEER_PYTHON:-}" ] || return 1
  local packages version
  packages=$("$DTRAIN_PEER_PYTHON" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))')
  version=$("$DTRAIN_PEER_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [ -e "$root/usr/lib/python$version" ] || die "DTRAIN_PEER_PYTHON is $version, which this root's Python is not"
  mkdir -p "$root/opt/torch"
  mount --bind -o ro "$packages" "$root/opt/torch"
  in_root python3 -m venv --without-pip /root/torch
  echo /opt/torch >"$root/root/torch/lib/python$version/site-packages/torch.pth"
}

# use_it BIN: what somebody does who has installed it: any program, a PyTorch script, a training run; and what is said
# of MPI, which is not there.
use_it() {
  local bin=$1
  # The workers' shell expands these.
  # shellcheck disable=SC2016
  timed "dtrain-launch: two workers of a shell script" "$bin/dtrain-launch" --nproc_per_node=2 sh -c 'echo $RANK of $WORLD_SIZE'
  expect '^1 of 2$'
  timed "dtrain train: LeNet, two workers, 3 steps" "$bin/dtrain-launch" --nproc_per_node=2 dtrain train --model lenet \
    --dataset synthetic:1x28x28,10,256 --max-steps 3 --run-dir "/root/run-${bin//\//-}"
  if [ -e "$root/root/torch" ]; then
    timed "PyTorch DDP script, two workers" env PYTHON_EXEC=/root/torch/bin/python OMP_NUM_THREADS=1 \
      "$bin/dtrain-launch" --nproc_per_node=2 /root/ddp.py
    expect 'rank 1 of 2: loss'
  fi
  timed "dtrain doctor: MPI is not here, which is a note" sh -c "$bin/dtrain doctor; true"
  expect '^note +mpi +the MPI module cannot be loaded \(libmpi.*apt install openmpi-bin'
  expect_failure 'the MPI module cannot be loaded \(libmpi.*apt install openmpi-bin' env OMPI_COMM_WORLD_RANK=0 \
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "$bin/dtrain" bench allreduce
  no_compiler
}

# under_mpirun BIN: with the machine's own MPI, which came after the package.
under_mpirun() {
  local bin=$1
  timed "apt install openmpi-bin" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends openmpi-bin
  timed "mpirun -np 2 dtrain train: LeNet, 3 steps" mpirun --allow-run-as-root --oversubscribe -np 2 "$bin/dtrain" train \
    --model lenet --dataset synthetic:1x28x28,10,256 --max-steps 3 --backend mpi --run-dir "/root/mpi-${bin//\//-}"
  timed "dtrain doctor" sh -c "$bin/dtrain doctor; true"
  expect '^ok +mpi +Open MPI'
}

make_root() {
  mkdir -p "$dir/$1"
  make_bare_root "$dir/$1" '' '' python3-venv,ca-certificates
  mount_kernel_folders
  cp "$repository/examples/launch_anything/ddp.py" "$root/root/"
  mount_torch || say "no PyTorch script: DTRAIN_PEER_PYTHON names no Python that has torch"
  no_compiler
  timed "apt-get update" apt-get -qq update
}

make_root wheel
cp "$wheel" "$root/root/"
say "the wheel: $(du -k "$wheel" | cut -f1) KiB"
in_root python3 -m venv /root/env
timed "pip install of the wheel" /root/env/bin/pip install --no-index "/root/$(basename "$wheel")"
say "installed: $(du -csk "$root/root/env/bin"/dtrain* "$root/root/env/lib/dtrain" | awk 'END { print $1 }') KiB"
use_it /root/env/bin
under_mpirun /root/env/bin
unmount_all

make_root deb
cp "$deb" "$root/root/"
say "the package: $(du -k "$deb" | cut -f1) KiB; depends: $(dpkg-deb -f "$deb" Depends)"
before=$(in_root dpkg-query -W | wc -l)
timed "apt install of the package" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
  "/root/$(basename "$deb")"
say "installed: $(dpkg-deb -f "$deb" Installed-Size) KiB, with $(($(in_root dpkg-query -W | wc -l) - before - 1)) packages that it depends on"
use_it /usr/bin
under_mpirun /usr/bin
# What compiles is among what the package suggests.
mapfile -t compiling < <(dpkg-deb -f "$deb" Suggests | tr ',' '\n' | grep -E 'g\+\+|make|-dev' | tr -d ' ')
timed "apt install ${compiling[*]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
  "${compiling[@]}"
cp -r "$repository/examples" "$repository/tests/consumer/own_path.sh" "$root/root/"
in_root bash /root/own_path.sh /root/examples
say "bare.sh: all good"
