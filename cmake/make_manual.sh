#!/usr/bin/env bash
# Manual pages and completion scripts, from what the programs say of themselves: a page for each command that their help
# lists, so that a new one gets its own.
#
# usage: bash cmake/make_manual.sh BIN OUTPUT    (BIN: the folder of dtrain and dtrain-launch)
set -euo pipefail
bin=$1 output=$2
rm -rf "$output"
mkdir -p "$output"/man/man1 "$output"/bash-completion/completions "$output"/zsh/site-functions \
  "$output"/fish/vendor_completions.d

# page COMMAND...: its manual page, and those of the commands that its help lists.
page() {
  local text name command
  name=$(IFS=- && echo "$*")
  text=$("$bin/$1" "${@:2}" --help)
  local file=$output/man/man1/$name.1
  "$bin/$1" "${@:2}" --help=man >"$file" 2>/dev/null || true
  if ! grep -q '^\.TH' "$file"; then  # it has commands instead of options
    {
      printf '.TH %s 1 "" dtrain "dtrain manual"\n.SH NAME\n%s \\- %s\n' "${name^^}" "${name//-/\\-}" \
        'distributed training: commands'
      printf '.SH SYNOPSIS\n.nf\n%s\n.fi\n' "$(sed -e 's/\\/\\e/g; s/-/\\-/g; s/^[.'"'"']/\\\&&/' <<<"$text")"
    } >"$file"
  fi
  {
    printf '.SH SEE ALSO\n'
    [ "$name" = dtrain ] || printf '.BR dtrain (1),\n'
    printf '.BR dtrain\\-launch (1)\n'
  } >>"$file"
  for command in $(sed -nE 's/^  ([a-z]+)  +.*/\1/p' <<<"$text"); do page "$@" "$command"; done
}

page dtrain
page dtrain-launch
for program in dtrain dtrain-launch; do
  "$bin/dtrain" completion bash >"$output/bash-completion/completions/$program"
  "$bin/dtrain" completion fish >"$output/fish/vendor_completions.d/$program.fish"
done
"$bin/dtrain" completion zsh >"$output/zsh/site-functions/_dtrain"
