#!/usr/bin/env bash
# Runs the README's two commands and the tutorial where nothing is installed: makes a bare Debian root with debootstrap, clones the
# repository into it and times both. Needs root; everything is mounted in a mount namespace of its own, so nothing
# can stay mounted here, however it ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/clean_room.sh [--dir DIR] [--suite SUITE] [--mirror URL] [--keep] [--quickstart ARGS] [--tests ARGS]
                                [--tutorial skip]

  --dir DIR           where the root is made (default: a new folder under /var/tmp); it must not exist
  --suite SUITE       release to make (default: the one this machine runs, e.g. bookworm)
  --mirror URL        where its packages are (default: this machine's own apt source for that suite)
  --keep              leave the root there afterwards
  --quickstart ARGS   passed to cluster/local/quickstart.sh, e.g. --build-only; "skip" leaves it out
  --tests ARGS        passed to tests/run.sh; "skip" leaves it out
  --tutorial skip     leaves docs/tutorial.md out
TEXT
}

die() { printf 'clean_room.sh: %s\n' "$*" >&2; exit 1; }
say() { printf '=== %s\n' "$*"; }

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
arguments=("$@")
dir='' suite='' mirror='' keep=no quickstart='' tests='' tutorial=''
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes; shift; continue ;;
    -h | --help) usage; exit 0 ;;
    --dir | --suite | --mirror | --quickstart | --tests | --tutorial) [ $# -ge 2 ] || die "$1: expected a value" ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  case $1 in
    --dir) dir=$2 ;;
    --suite) suite=$2 ;;
    --mirror) mirror=$2 ;;
    --quickstart) quickstart=$2 ;;
    --tests) tests=$2 ;;
    --tutorial) tutorial=$2 ;;
  esac
  shift 2
done

[ "$(id -u)" -eq 0 ] || die "needs root: debootstrap and chroot do"
for tool in debootstrap unshare git; do
  command -v "$tool" >/dev/null || die "needs '$tool': apt install debootstrap util-linux git"
done

# Once more, in a mount and process namespace of our own: mounts and processes end with it.
if [ "${DTRAIN_CLEAN_ROOM_INSIDE:-}" != yes ]; then
  export DTRAIN_CLEAN_ROOM_INSIDE=yes
  exec unshare --mount --pid --fork --kill-child --propagation private -- bash "${BASH_SOURCE[0]}" "${arguments[@]}"
fi

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

# in_root COMMAND…: runs it in the bare root with an environment of its own.
in_root() {
  local carried=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL SSL_CERT_FILE; do
    [ -z "${!name:-}" ] || carried+=("$name=${!name}")
  done
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${carried[@]}" \
    chroot "$root" "$@" </dev/null
}

# timed NAME COMMAND…: sets seconds_<NAME> and code_<NAME>.
timed() {
  local name=$1 begin=$SECONDS code=0
  shift
  say "$*"
  in_root "$@" || code=$?
  printf -v "seconds_$name" '%s' $((SECONDS - begin))
  printf -v "code_$name" '%s' "$code"
}

# shellcheck disable=SC1091
suite=${suite:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
sources=$(apt_sources "$suite")
[ -n "$sources" ] || sources="${mirror:?"no apt source for '$suite' here; name one with --mirror URL"} $suite main
$mirror $suite universe"
mirror=${mirror:-$(awk -v suite="$suite" '$2 == suite { print $1; exit }' <<<"$sources")}

if [ -z "$dir" ]; then
  dir=$(mktemp -d /var/tmp/dtrain-clean-room.XXXXXX)
else
  [ ! -e "$dir" ] || die "--dir $dir: exists already; name a folder that can be made and removed"
  mkdir -p "$dir"
fi
root=$(cd "$dir" && pwd)/root
cleanup() {
  # Also what was mounted in there since, such as /run/netns; the deepest first.
  awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount -l || true
  [ "$keep" = yes ] || rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "a bare $suite root in $root, packages from $mirror"
# A release newer than this debootstrap is made like its elders; Ubuntu's keys are seldom at hand on Debian.
script=/usr/share/debootstrap/scripts/$suite
keyring=()
case $mirror in
  *ubuntu*)
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/gutsy
    [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || keyring=(--no-check-gpg)
    ;;
  *) [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid ;;
esac
debootstrap --variant=minbase "${keyring[@]}" "$suite" "$root" "$mirror" "$script" >"$dir/debootstrap.log" 2>&1 ||
  { tail -n 20 "$dir/debootstrap.log"; die "debootstrap failed; its log is above"; }

rm -f "$root"/etc/apt/sources.list.d/*
trust=''
[ ${#keyring[@]} -eq 0 ] || trust='[trusted=yes] '
awk -v trust="$trust" '{ print "deb " trust $1, $2, $3 }' <<<"$sources" >"$root/etc/apt/sources.list"
carry_network_settings "$root"
git clone --quiet --no-hardlinks "$repository" "$root/root/dtrain"
say "cloned $(git -C "$root/root/dtrain" rev-parse --short HEAD); $(du -sm "$root" | cut -f1) MB in all"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
in_root sh -c '! command -v g++ cmake python3 mpirun' || die "the root is not bare"

code_quickstart=0 seconds_quickstart=- code_tutorial=0 seconds_tutorial=- code_tests=0 seconds_tests=-
# Both lists of arguments are meant to be split at spaces.
# shellcheck disable=SC2086
[ "$quickstart" = skip ] || timed quickstart bash /root/dtrain/cluster/local/quickstart.sh $quickstart
[ "$tutorial" = skip ] || timed tutorial bash /root/dtrain/tests/docs/tutorial.sh
# shellcheck disable=SC2086
[ "$tests" = skip ] || timed tests bash /root/dtrain/tests/run.sh $tests

say "$suite, $(nproc) cores, from nothing: quickstart.sh ${seconds_quickstart} s (exit code $code_quickstart);" \
  "the tutorial ${seconds_tutorial} s (exit code $code_tutorial); tests/run.sh ${seconds_tests} s (exit code $code_tests)"
[ "$code_quickstart" -eq 0 ] && [ "$code_tutorial" -eq 0 ] && [ "$code_tests" -eq 0 ]
