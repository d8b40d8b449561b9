// What workers of asynchronous servers have in place of a group: rank 0 says things at the start of a run,
// and a server keeps them for workers that come later, too.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "parallel/server/key_value_store.h"

namespace dtrain {

/// Rank `rank` of `size` workers. broadcast() from rank 0 of host memory goes over `store`, which is
/// borrowed: a worker that begins again hears the same from the first one on. Nothing else can be called: it
/// throws UsageError, since it would wait for workers that may come and go.
std::unique_ptr<Communicator> make_key_value_communicator(KeyValueStore& store, int rank, int size);

}  // namespace dtrain
