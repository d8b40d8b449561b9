#!/usr/bin/env bash
# Types what docs/tutorial.md says, from the top, in the repository's root; fails where a command does, or where what
# the page promises did not happen. It installs to ~/.local, writes to ~/mine, and kills by name: for a machine of its
# own (tests/clean_room.sh has one).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=cluster/local/packages.sh
source "$root/cluster/local/packages.sh"
need_packages procps  # pkill: every machine that people sit at has it
cd "$root"
[ ! -e ~/mine ] || { echo "tutorial.sh: ~/mine: expected nothing of that name; the page makes it"; exit 1; }

commands=$(mktemp)
trap 'rm -f "$commands"' EXIT
sed -n 's/^    //p' docs/tutorial.md >"$commands"
begin=$SECONDS
bash -exo pipefail -c "source $commands"
cd ~/mine
steps=$(grep -c '"event":"step"' second/metrics.jsonl)
for file in first/summary.json first/report.html second/summary.json; do
  [ -s "$file" ] || { echo "tutorial.sh: ~/mine/$file: expected a file, there is none"; exit 1; }
done
echo "tutorial.sh: done in $((SECONDS - begin)) s; the killed run's metrics hold $steps steps"
