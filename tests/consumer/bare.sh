#!/usr/bin/env bash
# Installs the wheel and the Debian packages where nothing else is: in bare roots made with debootstrap, without compiler,
# without MPI, without CUDA. Prints sizes and seconds of a PyTorch DDP script and a training run under the installed launcher.
# Needs root, and packages that are made already, so it is run by hand:
#
#   bash cluster/local/make_packages.sh --cuda --emulated-gpus packages
#   bash tests/consumer/bare.sh packages/*
#
# A package with the CUDA module must say what is missing, and load what is there; one with emulated GPUs must train on them.
#
# DTRAIN_PEER_PYTHON    a Python that has torch, of the root's version: its site-packages are mounted there. Without one no
#                       PyTorch script is started.
# DTRAIN_NVIDIA_WHEELS  a folder site-packages/nvidia with cuBLAS, cuDNN and NCCL. Without one they are only missed.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/bare_root.sh
source "$repository/cluster/local/bare_root.sh"
wheel='' deb='' cuda_deb='' emulated_deb=''
[ $# -gt 0 ] || die "usage: bare.sh PACKAGE...    (dtrain-*.whl, dtrain_*.deb, dtrain-cuda_*.deb, dtrain-emulated-gpus_*.deb)"
for package in "$@"; do
  case ${package##*/} in
    dtrain-*.whl) wheel=$(realpath "$package") ;;
    dtrain_*.deb) deb=$(realpath "$package") ;;
    dtrain-cuda_*.deb) cuda_deb=$(realpath "$package") ;;
    dtrain-emulated-gpus_*.deb) emulated_deb=$(realpath "$package") ;;
    *) die "$package: expected a wheel or a Debian package of dtrain" ;;
  esac
done
own_namespaces "${BASH_SOURCE[0]}" "$@"

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

# install_deb PACKAGE: by apt, with what it depends on.
install_deb() {
  cp "$1" "$root/root/"
  say "the package: $(du -k "$1" | cut -f1) KiB; depends: $(dpkg-deb -f "$1" Depends)"
  timed "apt install of ${1##*/}" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
    "/root/${1##*/}"
}

# with_cuda BIN FOLDER: the CUDA module names what is missing, and takes NVIDIA's wheels where pip would put them: FOLDER.
with_cuda() {
  local bin=$1 folder=$2
  timed "dtrain doctor: NVIDIA's libraries are not here" sh -c "$bin/dtrain doctor; true"
  expect 'libcublasLt\.so\.1[0-9]: not found, libcudnn\.so\.9: not found, libnccl\.so\.2: not found'
  expect 'pip install nvidia-cublas[^ ]* nvidia-cudnn-cu1[0-9] nvidia-nccl-cu1[0-9]"'
  expect_failure 'libcudnn\.so\.9: not found.*pip install' "$bin/dtrain" train --model lenet --device cuda --max-steps 1
  [ -n "${DTRAIN_NVIDIA_WHEELS:-}" ] || { say "DTRAIN_NVIDIA_WHEELS names no wheels: not loaded"; return; }
  mkdir -p "$root/$folder/nvidia"
  mount --bind -o ro "$DTRAIN_NVIDIA_WHEELS" "$root/$folder/nvidia"
  timed "dtrain doctor: NVIDIA's wheels are here, the driver is not" sh -c "$bin/dtrain doctor; true"
  expect '^(ok|note) +gpu .*driver'
  expect '^(ok|note) +cuBLASLt .*'"$folder/nvidia"
  expect '^(ok|note) +cuDNN .*'"$folder/nvidia"
  expect '^(ok|note) +NCCL .*'"$folder/nvidia"
  expect_failure 'device cuda: .*driver' "$bin/dtrain" train --model lenet --device cuda --max-steps 1
  umount "$root/$folder/nvidia"
}

with_emulated_gpus() {
  local bin=$1
  timed "dtrain train: LeNet, two emulated GPUs, 3 steps" "$bin/dtrain-launch" --emulated-gpus 2 dtrain train --model lenet \
    --dataset synthetic:1x28x28,10,256 --max-steps 3 --run-dir "/root/emulated-${bin//\//-}"
  grep -q '"emulated": true' "$root/root/emulated-${bin//\//-}/summary.json" || die "the run was on no emulated GPU"
}

# reads_and_completes BIN SHARE: man pages and completion, as the shells find them.
reads_and_completes() {
  local bin=$1 share=$2
  timed "apt install man-db bash-completion zsh fish" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy \
    --no-install-recommends man-db bash-completion zsh fish
  local page
  for page in dtrain dtrain-train dtrain-launch dtrain-data-check; do
    timed "man $page" env MANPATH="$share/man" MANPAGER=cat man "$page"
    expect '^SYNOPSIS'
  done
  # shellcheck disable=SC2016 # the shells of the root expand these
  local words='COMP_WORDS=(dtrain-launch --max-r); COMP_CWORD=1; _dtrain; echo "${COMPREPLY[@]}"'
  timed "bash completes" env PATH="$bin:/usr/bin:/bin" XDG_DATA_DIRS="$share" bash -c \
    "source /usr/share/bash-completion/bash_completion; _completion_loader dtrain-launch; $words"
  expect '^--max-restarts'
  timed "zsh completes" env PATH="$bin:/usr/bin:/bin" zsh -fc \
    "fpath=($share/zsh/site-functions \$fpath); autoload -Uz compinit; compinit -D; echo \$_comps[dtrain-launch]; _dtrain 2>&1 | head -1"
  expect '^_dtrain$'
  timed "fish completes" env PATH="$bin:/usr/bin:/bin" XDG_DATA_DIRS="$share:/usr/share" fish -c "complete -C 'dtrain trai'"
  expect '^train'
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

if [ -n "$wheel" ]; then
  make_root wheel
  cp "$wheel" "$root/root/"
  say "the wheel: $(du -k "$wheel" | cut -f1) KiB"
  in_root python3 -m venv /root/env
  timed "pip install of the wheel" /root/env/bin/pip install --no-index "/root/$(basename "$wheel")"
  say "installed: $(du -csk "$root/root/env/bin"/dtrain* "$root/root/env/lib/dtrain" | awk 'END { print $1 }') KiB"
  use_it /root/env/bin
  [ ! -e "$root/root/env/lib/dtrain/libdtrain_cuda.so" ] ||
    with_cuda /root/env/bin "$(cd "$root" && echo root/env/lib/python3*/site-packages)"
  [ ! -e "$root/root/env/lib/dtrain/libdtrain_cuda_emulated.so" ] || with_emulated_gpus /root/env/bin
  reads_and_completes /root/env/bin /root/env/share
  under_mpirun /root/env/bin
  unmount_all
fi
[ -n "$deb" ] || { say "bare.sh: all good"; exit 0; }

make_root deb
before=$(in_root dpkg-query -W | wc -l)
install_deb "$deb"
say "installed: $(dpkg-deb -f "$deb" Installed-Size) KiB, with $(($(in_root dpkg-query -W | wc -l) - before - 1)) packages that it depends on"
use_it /usr/bin
if [ -n "$cuda_deb" ]; then
  expect_failure 'the CUDA module cannot be loaded .*install the package that has it \(Debian: dtrain-cuda\)' dtrain train \
    --model lenet --device cuda --max-steps 1
  install_deb "$cuda_deb"
  with_cuda /usr/bin usr/lib/python3/dist-packages
fi
if [ -n "$emulated_deb" ]; then
  install_deb "$emulated_deb"
  with_emulated_gpus /usr/bin
fi
reads_and_completes /usr/bin /usr/share
under_mpirun /usr/bin
# What compiles is among what the package suggests.
mapfile -t compiling < <(dpkg-deb -f "$deb" Suggests | tr ',' '\n' | grep -E 'g\+\+|make|-dev' | tr -d ' ')
timed "apt install ${compiling[*]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
  "${compiling[@]}"
cp -r "$repository/examples" "$repository/tests/consumer/own_path.sh" "$root/root/"
in_root bash /root/own_path.sh /root/examples
say "bare.sh: all good"
