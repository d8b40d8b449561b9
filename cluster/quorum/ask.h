// Asking several launchers at once who leads, or for their votes.
#pragma once

#include <vector>

#include "cluster/quorum/voters.h"
#include "cluster/store/store_client.h"

namespace dtrain::rendezvous {

/// The answers of those who gave one in time, in no order. Blocks until all have, or `votes` (not 0) are
/// granted, or one of them follows a later leader than request.known_term's, for `patience` at most.
std::vector<VoteAnswer> ask_all(const std::vector<Endpoint>& others, const StoreClientOptions& options,
                                const VoteRequest& request, Duration patience, std::size_t votes);

}  // namespace dtrain::rendezvous
