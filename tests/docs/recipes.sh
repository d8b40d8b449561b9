#!/usr/bin/env bash
# The programs of docs/guide/recipes/*.md, which the build has made of the pages, and those of docs/lessons.md: each prints
# what its page says, and what a page shows of another file stands there.
#
# usage: recipes.sh PROGRAMS      (a folder with them and the examples; DTRAIN_BIN: the folder with dtrain-launch;
#                                  DTRAIN_HAVE_PNG=0: the pages on pictures are left out)
#        recipes.sh --gpus PROGRAMS (those that are interesting there, on emulated GPUs: losses are those of the CPU)
#        recipes.sh --source PAGE [MARKER] (writes the page's program to standard output, nothing where it has none; or what
#                                  is behind another marker: 'kernels: nearest.cu')
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/docs/page.sh
source "$root/tests/docs/page.sh"
if [ "${1:-}" = --source ]; then
  block "$2" "<!-- ${3:-program: $(program_of "$2")} -->"
  exit
fi
on_gpus=no
[ "${1:-}" != --gpus ] || { on_gpus=yes; shift; }
[ $# -eq 1 ] || { echo "usage: recipes.sh PROGRAMS" >&2; exit 2; }
programs=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$DTRAIN_BIN:$PATH

# losses_of RUN: the training losses of its steps, to five digits.
losses_of() { sed -n 's/^{"event":"step".*"loss":\([-0-9.e]*\),.*/\1/p' "$1/metrics.jsonl" | xargs printf '%.5f\n'; }
if [ $on_gpus = yes ]; then
  cd "$work"
  for line in "own_operation --dataset synthetic:1x8x8,4,64 --optimizer adam --lr 0.01" \
    "contrastive --optimizer adamw --lr 0.003 --global-batch-size 128" \
    "sequences --optimizer adamw --lr 0.01 --global-batch-size 32"; do
    read -r name options <<<"$line"
    read -ra options <<<"$options --max-steps 4 --log-every 1"
    for device in cpu cuda; do
      DTRAIN_EMULATED_GPUS=2 dtrain-launch --nproc_per_node=2 "$programs/$name" "${options[@]}" --device $device \
        --run-dir "$name-$device" >"$name-$device.out" 2>&1 || { cat "$name-$device.out"; exit 1; }
    done
    paste <(losses_of "$name-cpu") <(losses_of "$name-cuda") | awk -v name="$name" '
      { apart = $1 - $2; if (apart < 0) apart = -apart }
      apart > 2e-5 { print name ": expected the losses of the CPU, got " $2 " for " $1; exit 1 }
      END { if (NR != 4) { print name ": expected 4 steps, got " NR; exit 1 } }'
  done
  # What a page says of them.
  ln -s "$programs/own_operation" .
  block "$root/docs/guide/recipes/own_operation.md" '<!-- run on emulated GPUs -->' >session
  [ -s session ] || { echo "recipes.sh: own_operation.md: expected a session (<!-- run on emulated GPUs -->)" >&2; exit 1; }
  run_session own_operation.session session
  echo "recipes.sh: own_operation, contrastive and sequences have the losses of the CPU on two emulated GPUs"
  exit
fi

# check_excerpts PAGE: blocks behind <!-- from: FILE --> are lines of that file, one behind the other.
check_excerpts() {
  local file
  while IFS= read -r file; do
    block "$1" "<!-- from: $file -->" | sed 's/^ *//; /^$/d' >"$work/excerpt"
    sed 's/^ *//; /^$/d' "$root/$file" >"$work/whole"
    awk 'NR == FNR { whole[++lines] = $0; next }
      $0 == "…" { next }
      { while (++at <= lines && whole[at] != $0) {}
        if (at > lines) { print; exit 1 } }' "$work/whole" "$work/excerpt" >"$work/missing" || {
      echo "recipes.sh: $1: expected lines of $file, in its order, got: $(cat "$work/missing")" >&2
      exit 1
    }
  done < <(sed -n 's/^<!-- from: \(.*\) -->$/\1/p' "$1" | sort -u)
}

count=0
failed=()
begin=$SECONDS
for page in "$root"/docs/guide/recipes/*.md "$root/docs/lessons.md"; do
  name=$(basename "$page" .md)
  [ "$name" != README ] || continue
  check_excerpts "$page"
  if [ "${DTRAIN_HAVE_PNG:-1}" = 0 ] && grep -q small_pictures.py "$page"; then
    echo "recipes.sh: $page: left out, this build reads no PNG (apt install libpng-dev)"
    continue
  fi
  block "$page" '<!-- run -->' >"$work/$name.session"
  [ -s "$work/$name.session" ] || { echo "recipes.sh: $page: expected a session (<!-- run -->)" >&2; exit 1; }
  mkdir "$work/$name"
  find "$programs" -maxdepth 1 -type f -perm -u+x -exec ln -s {} "$work/$name/" \;
  ln -s "$root/examples/small_pictures.py" "$work/$name/"
  write_files "$page" "$work/$name"
  page_begin=$SECONDS
  (cd "$work/$name" && run_session "$name" "$work/$name.session") || failed+=("$name")
  echo "recipes.sh: $name: $((SECONDS - page_begin)) s"
  rm -rf "${work:?}/$name"  # checkpoints of a few hundred megabytes
  count=$((count + 1))
done
[ ${#failed[@]} -eq 0 ] || { echo "recipes.sh: not as on their pages: ${failed[*]}" >&2; exit 1; }
echo "recipes.sh: $count pages say what their programs print, in $((SECONDS - begin)) s"
