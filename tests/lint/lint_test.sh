#!/usr/bin/env bash
# Every rule of tests/lint.sh must catch a breach of it, name file and line, and fail; a clean tree must pass.
set -euo pipefail
lint=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/lint.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# fresh_tree: a small tree that is clean.
fresh_tree() {
  rm -rf "${work:?}/tree"
  mkdir -p "$work"/tree/{cmake,tests,launcher/{plan,subreaper},cluster/{store,rendezvous},models,training/loop,collectives/{gloo,mpi,p2p,shm},runtime/{base,tensor,nn,device/{cpu,cuda}}}
  put runtime/base/error.h '#pragma once'
  put runtime/tensor/tensor.h '#pragma once' '#include "runtime/base/error.h"'
  put cluster/store/store.cc '#include "runtime/base/error.h"'
  put models/train.cc '#include "runtime/tensor/tensor.h"'
}

# put FILE LINE…: a source file with a header comment.
put() {
  local file=$work/tree/$1
  shift
  { echo '// What it is for.'; printf '%s\n' "$@"; } >"$file"
}

# expect PATTERN: the tree as it stands must be refused with a line that matches.
expect() {
  local output
  if output=$(bash "$lint" "$work/tree"); then
    echo "accepted, but expected a violation matching: $1"; failures=$((failures + 1))
  elif ! grep -qE "$1" <<<"$output"; then
    printf '%s\n%s\n' "expected a violation matching: $1, got:" "$output"; failures=$((failures + 1))
  fi
  fresh_tree
}

fresh_tree
bash "$lint" "$work/tree" || { echo "a clean tree was refused"; failures=$((failures + 1)); }

put tests/lost_test.cc 'int main() {}'
touch "$work/tree/tests/CMakeLists.txt"
expect '^(\./)?tests/lost_test.cc:1: a test that is not built'

put runtime/tensor/shape.h '#pragma once' 'constexpr int kMostDims = 4;'
put runtime/tensor/a.cc '#include "runtime/tensor/shape.h"'
put runtime/tensor/b.cc 'int most = kMostDims;'
expect '^runtime/tensor/b.cc:2: kMostDims: include "runtime/tensor/shape.h"'

put runtime/base/error.h '#pragma once' '#include "runtime/tensor/tensor.h"'
expect '^runtime/base/error.h:3: runtime/base may not include runtime/tensor'
put runtime/tensor/tensor.h '#pragma once' '#include "runtime/nn/module.h"'
expect '^runtime/tensor/tensor.h:3: runtime/tensor may not include runtime/nn'
put cluster/store/store.cc '#include "collectives/communicator.h"'
expect '^cluster/store/store.cc:2: cluster/store may not include collectives'
put cluster/store/store.h '#pragma once' '#include "cluster/rendezvous/member.h"'
expect '^cluster/store/store.h:3: cluster/store may not include cluster/rendezvous'
put launcher/plan/plan.cc '#include "launcher/subreaper/spawn.h"'
expect '^launcher/plan/plan.cc:2: launcher/plan may not include launcher/subreaper'
put collectives/communicator.cc '#include "runtime/tensor/tensor.h"'
expect '^collectives/communicator.cc:2: collectives may not include runtime/tensor'
put training/loop/trainer.cc '#include "models/lenet.h"'
expect '^training/loop/trainer.cc:2: training may not include models'
put launcher/main.cc '#include "runtime/tensor/tensor.h"'
expect '^launcher/main.cc:2: launcher may not include runtime/tensor'
put launcher/subreaper/spawn.cc '#include "spawn.h"'
expect '^launcher/subreaper/spawn.cc:2: include "spawn.h" by its path'
put collectives/gloo/a.cc '#include "collectives/mpi/b.h"'
expect '^collectives/gloo/a.cc:2: .*stand side by side'
put collectives/p2p/a.cc '#include "collectives/shm/b.h"'
expect '^collectives/p2p/a.cc:2: what backends stand on'
put collectives/shm/a.cc '#include "collectives/gloo/b.h"'
expect '^collectives/shm/a.cc:2: what backends stand on'
put runtime/device/device.h '#pragma once' '#include "runtime/device/cpu/cpu.h"'
expect '^runtime/device/device.h:3: a seam must not know'
put runtime/tensor/tensor.cc '#include <cuda_runtime.h>'
expect '^runtime/tensor/tensor.cc:2: <cuda_runtime.h> stays in its room'
put models/train.cc '#include <mpi.h>'
expect '^models/train.cc:2: <mpi.h> stays in its room'
put runtime/tensor/tensor.h 'int x;'
expect "^runtime/tensor/tensor.h: no '#pragma once'"
put runtime/tensor/tensor.h '#pragma once' 'using namespace std;'
expect '^runtime/tensor/tensor.h:3: no using namespace'
put cluster/store/store.cc 'void f() { std::exit(1); }'
expect '^cluster/store/store.cc:2: libraries never exit'
put cluster/store/store.cc 'void f() { std::cout << 1; }'
expect '^cluster/store/store.cc:2: libraries never print'
put cluster/store/store.cc 'const char* text = "expected a token; give --insecure";'
expect '^cluster/store/store.cc:2: libraries know no flags'
printf '# Page\n\n| %0121d |\n\nhttps://example.org/%0121d\n' 1 2 >"$work/tree/page.md"
bash "$lint" "$work/tree" || { echo "a long table or address was refused"; failures=$((failures + 1)); }
printf '# Page\n\n%0121d\n' 1 >"$work/tree/page.md"
expect '^page.md:3: longer than 120 columns'
printf '# Page\n\n%s\n' "$(printf '→%.0s' {1..120})" >"$work/tree/page.md"
bash "$lint" "$work/tree" || { echo "120 columns of several bytes each were refused"; failures=$((failures + 1)); }
printf '# Page\n\nSee `store/gone.h` and `store/store.cc`.\n' >"$work/tree/page.md"
expect '^page.md:3: names store/gone.h, which is not there'
put cluster/rendezvous/slots.h '#pragma once' 'class Roster {};'
expect '^cluster/rendezvous/slots.h:3:Roster: a word of the past; say slot'
put cluster/rendezvous/slots.h '#pragma once' 'class RosterTree {};'
bash "$lint" "$work/tree" || { echo "a word that begins like one of the past was refused"; failures=$((failures + 1)); }
mkdir "$work/tree/docs" && printf '# Page\n\nThe run goes on.\n' >"$work/tree/docs/page.md"
expect '^docs/page.md:3:goes on: a word of the past; say resumes'
put cluster/store/store.cc '// Kept for whoever asks.'
expect '^cluster/store/store.cc:2:whoever: a word of the past; say anyone who'
echo 'The run goes on with Roster.' >"$work/tree/CHANGELOG.md"
bash "$lint" "$work/tree" || { echo "the history in the changelog was refused"; failures=$((failures + 1)); }
echo 'int x;' >"$work/tree/cluster/store/store.cc"
expect '^cluster/store/store.cc:1: begin with two or three lines'
printf '//%.0s\n' {1..501} >"$work/tree/cluster/store/store.cc"
expect '^cluster/store/store.cc: 501 lines'
mkdir "$work/tree/cluster/many"
for i in {1..31}; do put "cluster/many/file$i.cc" "int x$i;"; done
expect '^cluster/many: 31 files'
if command -v clang-format-14 >/dev/null; then
  cp "$(dirname "$lint")/../.clang-format" "$work/tree/"
  put cluster/store/store.cc 'int  f( ){return 1 ;}'
  expect '^cluster/store/store.cc:2:.*clang-format'
fi

[ "$failures" -eq 0 ] || { echo "$failures rules are not enforced"; exit 1; }
