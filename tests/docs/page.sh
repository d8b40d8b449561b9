#!/usr/bin/env bash
# What a page of the guide has that can be run; sourced. The indented block after
#   <!-- program: NAME -->   is a program,
#   <!-- from: FILE -->      stands in that file of the repository, line by line (indentation aside), that after
#   <!-- file: NAME -->      is a file of the session's folder, and that after
#   <!-- run -->             is a session: commands behind "$ " (which go on behind a \ at the end of a line), then lines
#                            of what they print, in this order; … stands for anything, other lines may come between.

# program_of PAGE: the name of its program; nothing where it has none.
program_of() { sed -n 's/^<!-- program: \([a-z_]*\) -->$/\1/p' "$1"; }

# block PAGE MARKER: the indented blocks behind lines that are the marker, without their indentation.
block() {
  awk -v marker="$2" '$0 == marker { on = 1; some = 0; next }
    on && /^    / { print substr($0, 5); some = 1; next }
    on && some && /^$/ { print; next }
    on && some { on = 0 }' "$1"
}

# write_files PAGE FOLDER: writes the page's files there.
write_files() {
  local file
  while IFS= read -r file; do
    block "$1" "<!-- file: $file -->" >"$2/$file"
  done < <(sed -n 's/^<!-- file: \([a-z_.]*\) -->$/\1/p' "$1")
}

# matches LINE: whether the rest of `output` has a line that is like it; continues behind that.
matches() {
  local pattern=${1//\\/\\\\}
  pattern=${pattern//\*/\\*} pattern=${pattern//\?/\\?} pattern=${pattern//\[/\\[} pattern=${pattern//…/*}
  while [ "$next" -lt ${#output[@]} ]; do
    local line=${output[$((next++))]}
    # shellcheck disable=SC2053 # a pattern
    [[ $line != $pattern ]] || return 0
  done
  return 1
}

# run_session NAME FILE: types the session's commands in this folder; ends the script where one fails or prints
# something else.
run_session() {
  local name=$1 line more code
  output=() next=0
  while IFS= read -r line <&3; do
    if [[ $line == '$ '* ]]; then
      while [[ $line == *'\' ]] && IFS= read -r more <&3; do line=${line%'\'}${more#"${more%%[! ]*}"}; done
      code=0
      bash -o pipefail -c "${line#\$ }" >"$name.out" 2>&1 || code=$?
      [ $code -eq 0 ] || { cat "$name.out"; echo "$name: '${line#\$ }' ended with code $code" >&2; exit 1; }
      mapfile -t output <"$name.out"
      next=0
    elif [ -n "$line" ]; then
      matches "$line" || { cat "$name.out"; echo "$name: expected the line '$line' in the output above" >&2; exit 1; }
    fi
  done 3<"$2"
}
