// all_reduce of a group that spans hosts, directly and as auto chooses, in turns: times, and what leaves a
// host.
#pragma once

#include "cluster/net/endpoint.h"

namespace dtrain::bench {

/// One of `size` ranks, `ranks` on each host; `master` is the first host's. DTRAIN_TOKEN is the secret. Rank
/// 0 prints the table. Returns the exit code.
int run_host_rank(int rank, int size, int ranks, const Endpoint& master);

}  // namespace dtrain::bench
