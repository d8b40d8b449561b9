#!/usr/bin/env bash
# Opens the pages of `dtrain report` in headless Chromium: one run, two compared, runs with nothing to draw, and a live
# run that grows while the browser looks. Checks what the browser made of them (its DOM, its console, its screenshots).
#
# usage: DTRAIN_BIN=build/ci/bin bash tests/browser/report.sh [FOLDER]    (FOLDER: where the screenshots stay)
set -euo pipefail
bin=$(cd "${DTRAIN_BIN:?expected the folder of dtrain}" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "skipped: no chromium here (apt install chromium-headless-shell)"
  exit 77
fi
work=$(mktemp -d)
shots=${1:-$work/shots}
mkdir -p "$shots"
server='' grower='' allowed='^$'
finish() {
  if [ -n "$grower" ]; then kill "$grower" 2>/dev/null || true; fi
  if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "report.sh: $*" >&2; exit 1; }

# browse NAME URL HEIGHT [FLAGS…]: the page's DOM as $work/NAME.html and its picture, 1280 wide, as $shots/NAME.png. Fails
# for an error of the page's script, and for a picture that shows nothing (a refusal is one line, a test none).
browse() {
  local name=$1 url=$2 height=$3
  shift 3
  HOME=$work timeout 60 "$browser" --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" --hide-scrollbars \
    --window-size="1280,$height" --enable-logging=stderr --dump-dom --screenshot="$shots/$name.png" "$@" "$url" \
    >"$work/$name.html" 2>"$work/$name.log" || fail "$name: chromium failed: $(tail -n3 "$work/$name.log")"
  if grep -a "CONSOLE" "$work/$name.log" | grep -av "$allowed"; then fail "$name: the console has complaints"; fi
  if grep -q 'id="script-error"' "$work/$name.html"; then fail "$name: $(grep -o 'id="script-error"[^/]*' "$work/$name.html")"; fi
  [[ $name = refused || $name = facts ]] || python3 "$here/picture.py" "$shots/$name.png" || fail "$name: the screenshot shows nothing"
}

# looked_over FILE: the address of a copy of that page whose layout is checked by a script at its end (layout.js); see expect_layout.
looked_over() {
  local copy=${1%.html}.looked-over.html
  { sed '/<\/body>/,$d' "$1"; echo '<script>'; cat "$here/layout.js"; echo '</script></body></html>'; } >"$copy"
  echo "file://$copy"
}
expect_layout() {
  grep -q ' data-layout=""' "$work/$1.html" || fail "$1: $(grep -o 'data-layout="[^"]*"' "$work/$1.html" || echo "the layout was not checked")"
}

expect() {  # expect NAME PATTERN WHAT
  grep -qE -- "$2" "$work/$1.html" || fail "$1: expected $3 ($2) in what the browser made of the page"
}
refuse() { if grep -qE -- "$2" "$work/$1.html"; then fail "$1: expected no $3 ($2)"; fi; }

python3 "$here/make_runs.py" "$work/runs"
cd "$work/runs"

# --- one run
"$bin/dtrain" report good >/dev/null
good=$(looked_over "$work/runs/good/report.html")
browse good "$good" 3100
expect_layout good
python3 "$here/check_page.py" "$work/good.html" loss accuracy rate memory learning_rate epochs phases
expect good '<tspan|class="x name"[^>]*>step<' "a name of the axis"
expect good 'data-name="training" data-points="400"' "every point of the training loss"
expect good 'data-name="rank 1"' "a bar of rank 1"
expect good '>Images per second<' "human names"
expect good '>--lr<' "the options that were changed"
expect good 'Started 2 times' "how often it was started"
refuse good 'samples_per_second</' "raw keys"
expect good '<use href="#batch-sheet"' "the first pictures"
expect good '<use href="#mistakes-sheet"' "the worst mistakes"
expect good 'title="12 of 42 of animals number 0 predicted as town number 3"' "a confusion of classes"
browse good-dark "$good" 3100 --blink-settings=preferredColorScheme=0
browse good-narrow "$good" 4000 --window-size=420,4000
expect_layout good-narrow

# --- with the mouse
{ sed '/<\/body>/,$d' good/report.html; echo '<script>'; cat "$here/look_test.js"; echo '</script></body></html>'; } >"$work/runs/good/report.looked-at.html"
browse looked-at "file://$work/runs/good/report.looked-at.html" 3100
grep -q 'data-look="as expected"' "$work/looked-at.html" || fail "looked-at: $(grep -o 'data-look="[^"]*"' "$work/looked-at.html")"

# --- what it says, by the page's own functions
page=$here/../../runtime/metrics/report
{ printf '<!DOCTYPE html><meta charset="utf-8"><body>'
  for script in "$page/words.js" "$page/facts.js" "$here/facts_test.js"; do
    echo '<script>'; cat "$script"; echo '</script>'
  done; } >"$work/facts.page.html"
browse facts "file://$work/facts.page.html" 300
expect facts 'data-facts="as expected"' "a test that came to its end"

# --- two and many, side by side
"$bin/dtrain" report good other >/dev/null
compared=$(looked_over "$work/runs/comparison.html")
browse compared "$compared" 1900
expect_layout compared
python3 "$here/check_page.py" "$work/compared.html" loss accuracy rate memory
expect compared 'data-name="good" data-points="400"' "the curve of the first run"
expect compared 'data-name="other" data-points="400"' "the curve of the second"
refuse compared '<use href="#batch-sheet"' "pictures of one of several runs"
expect compared '>--lr<' "the option that differs"
expect compared 'class="number best"' "which of them is best"

browse compared-narrow "$compared" 3400 --window-size=420,3400
expect_layout compared-narrow

# --- little or nothing to draw, and text that would be markup
for run in empty one broken; do
  "$bin/dtrain" report "$run" >/dev/null
  browse "$run" "file://$work/runs/$run/report.html" 1300
done
expect empty 'No step was recorded' "a word that there is nothing"
expect one '<circle' "a dot for the only step"
expect broken '2 of 7 lines of metrics.jsonl could not be read' "what was left out"
expect broken 'batch.json: expected a picture as data of a page' "that no picture is loaded from elsewhere"
expect broken '&lt;img src=x onerror=' "the option as text"
refuse broken '<img' "markup from the files"

# --- live
if ! "$bin/dtrain" --version | grep -q libevent; then
  echo "report.sh: passed; the live page was left out: dtrain was built without libevent"
  exit 0
fi
"$bin/dtrain" report live --watch >"$work/address" 2>"$work/server.log" &
server=$!
for _ in $(seq 400); do grep -q http "$work/address" && break; sleep 0.05; done
address=$(cat "$work/address")
[ -n "$address" ] || fail "no address from dtrain report --watch: $(cat "$work/server.log")"
allowed='status of 403'
browse refused "${address%%\?*}" 300
allowed='^$'
expect refused '403: expected the token' "a refusal without the token"
# The run grows all the time, and the browser looks for fifteen seconds of its own clock: the page must come further than
# the data that it began with, which still stands in it.
python3 "$here/make_runs.py" --grow "$work/runs/live" &
grower=$!
browse live "$address" 1500 --virtual-time-budget=15000
kill "$grower" && wait "$grower" || true
grower=
expect live 'data-refreshes="[1-9]' "a page that drew itself again"
expect live 'class="badge training"' "that it is training"
first=$(grep -oE '"last_step":[0-9]+' "$work/live.html" | tr -dc 0-9)
last=$(grep -oE 'data-step="[0-9]+"' "$work/live.html" | tr -dc 0-9)
[ "$last" -gt "$first" ] || fail "live: expected a step after $first, which the page began with, got $last"
kill "$server"
wait "$server" || fail "dtrain report --watch: expected exit code 0 after SIGTERM, got $?"
server=
echo "report.sh: passed: one run, two compared, three odd ones, a live one that followed from step $first to $last"
