#!/usr/bin/env bash
# The jobs that docs/guide/recipes/imagenet.md submits to Slurm, typed as the page has them, in a Slurm cluster on this
# machine (cluster/lab/slurm.sh). Skipped where there is no Slurm, or none can run.
#
# usage: imagenet_by_slurm.sh      (DTRAIN_BIN: the folder with dtrain and dtrain-launch)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/docs/page.sh
source "$root/tests/docs/page.sh"
page=$root/docs/guide/recipes/imagenet.md
export PATH=$DTRAIN_BIN:$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd sbatch; do
  command -v $program >/dev/null || { echo "skipped: no $program (apt install munge slurmctld slurmd slurm-client)"; exit 77; }
done

work=$(mktemp -d)
lab() { bash "$root/cluster/lab/slurm.sh" "$@"; }
export DTRAIN_SLURM_LAB=$work/lab DTRAIN_LAB_OWNER=$$
trap 'lab stop >/dev/null || true; rm -rf "$work"' EXIT
code=0
lab start 2 2 >"$work/start.log" 2>&1 || code=$?
if [ $code -eq 69 ]; then
  echo "skipped: $(cat "$work/start.log")"
  exit 77
fi
[ $code -eq 0 ] || { cat "$work/start.log"; exit 1; }
eval "$(lab env)"
unset DTRAIN_LAB_OWNER  # the lab has it; jobs need not

mkdir "$work/session"
cd "$work/session"
ln -s "$root/cluster" cluster
ln -s "$root/examples/small_pictures.py" .
write_files "$page" .
block "$page" '<!-- run in slurm -->' >"$work/slurm.session"
[ -s "$work/slurm.session" ] || { echo "imagenet_by_slurm.sh: $page: expected a session (<!-- run in slurm -->)" >&2; exit 1; }
python3 small_pictures.py imagenet >/dev/null
begin=$SECONDS
(run_session imagenet "$work/slurm.session") || { tail -n 40 ./*.log; exit 1; }
echo "imagenet_by_slurm.sh: packed, trained on two nodes and evaluated, in $((SECONDS - begin)) s"
