# shellcheck shell=bash
# A bare Debian or Ubuntu root made with debootstrap, for scripts that try dtrain where nothing is installed. Needs root.
# Sourced with `set -euo pipefail` on. Everything is mounted in a mount namespace of the script's own, so nothing can
# stay mounted on this machine, however it ends.

# shellcheck source=cluster/local/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

# own_namespaces SCRIPT ARGUMENT…: continues only inside; outside starts the script once more in a mount and process
# namespace of its own, where mounts and processes end with it.
own_namespaces() {
  [ "$(id -u)" -eq 0 ] || die "needs root: debootstrap and chroot do"
  local tool
  for tool in debootstrap unshare git; do
    command -v "$tool" >/dev/null || die "needs '$tool': apt install debootstrap util-linux git"
  done
  [ "${DTRAIN_BARE_ROOT_INSIDE:-}" != yes ] || return 0
  export DTRAIN_BARE_ROOT_INSIDE=yes
  exec unshare --mount --pid --fork --kill-child --propagation private -- bash "$@"
}

# apt_sources SUITE: this machine's sources for it and its updates, as "URI RELEASE COMPONENT" lines.
apt_sources() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$1" '$2 == suite || index($2, suite "-") == 1' | sort -u
}

# How this machine reaches its mirrors goes along: proxies, certificates, names.
carry_network_settings() {
  local root=$1
  cp /etc/hosts "$root/etc/hosts"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  mkdir -p "$root/etc/apt/apt.conf.d" "$root/etc/apt/auth.conf.d" "$root/usr/local/share/ca-certificates"
  apt-config dump Acquire | grep -iE '::(https?|ftp)::|::(Retries|ForceIPv[46]|Check-Valid-Until|Languages)|proxy' \
    >"$root/etc/apt/apt.conf.d/99host" || true
  cp -r /etc/apt/auth.conf.d/. "$root/etc/apt/auth.conf.d/" 2>/dev/null || true
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    mkdir -p "$root/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  fi
  [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
}

# in_root COMMAND…: runs it in $root with an environment of its own.
in_root() {
  local carried=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL SSL_CERT_FILE; do
    [ -z "${!name:-}" ] || carried+=("$name=${!name}")
  done
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${carried[@]}" \
    chroot "$root" "$@" </dev/null
}

# make_bare_root DIR SUITE MIRROR [PACKAGES]: a minimal root in DIR/root, whose path $root is from then on. SUITE and
# MIRROR may be empty: this machine's own. PACKAGES: more than the least, separated by commas.
make_bare_root() {
  local dir=$1 suite=$2 mirror=$3 packages=${4:-} sources
  # shellcheck disable=SC1091
  suite=${suite:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
  sources=$(apt_sources "$suite")
  [ -n "$sources" ] || sources="${mirror:?"no apt source for '$suite' here; name one with --mirror URL"} $suite main
$mirror $suite universe"
  mirror=${mirror:-$(awk -v suite="$suite" '$2 == suite { print $1; exit }' <<<"$sources")}
  root=$dir/root
  say "a bare $suite root in $root, packages from $mirror"
  # A release newer than this debootstrap is made like its elders; Ubuntu's keys are seldom at hand on Debian.
  local script=/usr/share/debootstrap/scripts/$suite options=(--variant=minbase) trust=''
  [ -z "$packages" ] || options+=("--include=$packages")
  case $mirror in
    *ubuntu*)
      [ -e "$script" ] || script=/usr/share/debootstrap/scripts/gutsy
      [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || { options+=(--no-check-gpg); trust='[trusted=yes] '; }
      ;;
    *) [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid ;;
  esac
  debootstrap "${options[@]}" "$suite" "$root" "$mirror" "$script" >"$dir/debootstrap.log" 2>&1 ||
    { tail -n 20 "$dir/debootstrap.log"; die "debootstrap failed; its log is above"; }
  rm -f "$root"/etc/apt/sources.list.d/*
  awk -v trust="$trust" '{ print "deb " trust $1, $2, $3 }' <<<"$sources" >"$root/etc/apt/sources.list"
  carry_network_settings "$root"
}

end_own_folder() {
  unmount_all
  [ "${keep:-no}" = yes ] || rm -rf --one-file-system "$dir"
}

# own_folder DIR NAME: makes the folder DIR, or where that is empty a new one named after NAME in /var/tmp; $dir is its path
# from then on. It goes when the script ends, unless $keep is yes; what is mounted in $root ends before.
own_folder() {
  dir=${1:-$(mktemp -d "/var/tmp/$2.XXXXXX")}
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  trap end_own_folder EXIT
  trap 'exit 130' INT TERM
}

# use_compiler_cache CACHE: that folder is $root's ccache, for a clone in /root/dtrain.
use_compiler_cache() {
  mkdir -p "$root/ccache"
  mount --bind "$1" "$root/ccache"
  printf 'cache_dir = /ccache\nbase_dir = /root/dtrain\nhash_dir = false\nsloppiness = locale\n' >"$root/etc/ccache.conf"
}

# mount_kernel_folders: /proc, /sys and /dev of $root.
mount_kernel_folders() {
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
}

# unmount_all: also what was mounted in $root since, such as /run/netns; the deepest first.
unmount_all() {
  awk -v root="${root:-/nowhere}/" 'index($2, root) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount -l || true
}
