#!/usr/bin/env bash
# Manual pages as the packages have them: one for each command, no warning of groff's or man's, every option. And what
# bash completes: commands, options, values and files, as if they were typed.
#
# usage: DTRAIN_BIN=build/release/bin bash tests/docs/manual.sh
set -euo pipefail
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain and dtrain-launch}" && pwd)
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

fault() {
  echo "manual.sh: $1"
  faults=$((faults + 1))
}

bash "$source_folder/cmake/make_manual.sh" "$bin" "$work/manual"
pages=("$work"/manual/man/man1/*.1)
for page in dtrain dtrain-train dtrain-data-check dtrain-bench-step dtrain-completion dtrain-launch dtrain-launch-status; do
  [ -s "$work/manual/man/man1/$page.1" ] || fault "expected a page $page(1), found: ${pages[*]##*/}"
done
for page in "${pages[@]}"; do
  grep -q '^\.SH NAME' "$page" && grep -q '^\.SH SYNOPSIS' "$page" || fault "${page##*/}: expected NAME and SYNOPSIS"
  if command -v groff >/dev/null; then
    warnings=$(groff -ww -man -Tutf8 -z "$page" 2>&1)
    [ -z "$warnings" ] || fault "${page##*/}: groff warns: $warnings"
  fi
  if command -v man >/dev/null; then
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fault "${page##*/}: man warns: $warnings"
  fi
done
command -v groff >/dev/null || echo "manual.sh: no groff here (apt install groff): the pages are not formatted"
# Every option of the help is in the page.
for command in "dtrain-launch" "dtrain train" "dtrain data check"; do
  # shellcheck disable=SC2086 # words of a command
  for option in $("$bin"/$command --help=words | cut -f1); do
    grep -qF -- "\\fB${option//-/\\-}\\fR" "$work/manual/man/man1/${command// /-}.1" ||
      fault "$command: expected $option in its manual page"
  done
done
zsh_script=$work/manual/zsh/site-functions/_dtrain
head -1 "$zsh_script" | grep -q '^#compdef dtrain dtrain-launch$' || fault "zsh: expected #compdef in the first line"
if command -v zsh >/dev/null; then zsh -n "$zsh_script" || fault "zsh: cannot read its script"; fi
if command -v fish >/dev/null; then
  fish_script=$work/manual/fish/vendor_completions.d/dtrain.fish
  PATH=$bin:$PATH fish --no-config -c "source $fish_script; complete -C 'dtrain trai'" | grep -q '^train' ||
    fault "fish: expected train for 'dtrain trai'"
fi

# completed WORD...: what bash offers for the last word; bash itself cuts words at '='.
completed() {
  (
    cd "$work"
    # shellcheck disable=SC1091 # made above
    source "$work/manual/bash-completion/completions/dtrain"
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _dtrain 2>/dev/null || true
    printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
  )
}
# offers EXPECTED WORD...
offers() {
  local expected=$1 got
  shift
  got=$(completed "$@")
  [ "$got" = "$expected " ] || fault "completion of '$*': expected '$expected', got '$got'"
}
export PATH=$bin:$PATH
touch "$work/a file.txt" "$work/script.py"
offers 'sampler' dtrain sam
offers 'tokenize train' dtrain t
offers 'check' dtrain data ch
offers '--max-restarts' dtrain-launch --max-r
offers '--max-steps' dtrain-launch --nproc_per_node 2 dtrain train --max-ste
offers '--max-steps' "$bin/dtrain" train --lr 0.1 --max-ste
offers 'cosine' dtrain train --lr-schedule cos
offers 'cosine' dtrain train --lr-schedule = cos
offers 'a file.txt' dtrain eval --checkpoint a
offers 'script.py' dtrain-launch --nproc-per-node 2 scr
offers 'script.py' dtrain-launch -r 3 ./tool --input scr
offers 'stacks status stop' dtrain-launch st
offers '--json' dtrain-launch status --js
offers '' dtrain train --no-such-option-
[ "$faults" -eq 0 ] || exit 1
echo "${#pages[@]} manual pages; bash completes"
