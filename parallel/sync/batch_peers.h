// Batch normalisation among the ranks of a communicator: torch.nn.SyncBatchNorm's exchange.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "runtime/autograd/batch_peers.h"

namespace dtrain {

/// Collective. Peers on a communicator of their own, split from `communicator`: what batch norm waits for
/// does not queue behind gradient buckets that are under way, and ranks need not agree on how the two
/// interleave. `timeout` bounds the split and each exchange. The peers must be gone before `communicator` is.
/// Throws PeerError.
std::shared_ptr<BatchPeers> make_batch_peers(Communicator& communicator, Duration timeout);

}  // namespace dtrain
