#!/bin/sh
# Any program is started as a worker: this one counts the lines of its share of the files it is given.
#
#     dtrain-launch --nproc_per_node=4 sh examples/launch_anything/shards.sh logs/*.txt
set -eu
place=0
for file in "$@"; do
  if [ $((place % WORLD_SIZE)) -eq "$RANK" ]; then
    echo "rank $RANK: $(wc -l <"$file") lines in $file"
  fi
  place=$((place + 1))
done
