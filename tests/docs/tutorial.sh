#!/usr/bin/env bash
# Types what docs/tutorial.md says, from the top, in the repository's root; fails where a command does, or where what
# the page promises did not happen. It installs, writes to ~/dtrain and ~/mine, and kills by name: for a machine of its
# own (tests/clean_room.sh has one).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=cluster/local/packages.sh
source cluster/local/packages.sh
need_packages procps
rm -rf ~/dtrain ~/mine

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
