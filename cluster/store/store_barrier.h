// A meeting point for a known number of peers, made of the store's counters.
#pragma once

#include <string_view>

#include "cluster/store/store.h"

namespace dtrain {

/// Returns when `count` peers have called it with this `name`, which must not have been used in this store
/// before; everyone passes the same `count`. One round trip, and one wait. When `deadline` passes, the
/// PeerError says how many have come. Throws UsageError when more than `count` come.
void barrier(Store& store, std::string_view name, int count, const Deadline& deadline);

}  // namespace dtrain
