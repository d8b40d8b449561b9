// Workers that were started with different options would train different things, or wait for each other in
// different calls: they are found before anything is trained.
#pragma once

#include "collectives/communicator.h"
#include "runtime/base/options.h"

namespace dtrain {

/// Collective over all workers: compares with rank 0 what all of them must have alike, which is everything
/// but what is a worker's own (Agreement::own). Throws UsageError with the option and both
/// values on a worker that differs, and PeerError with the same words on the others.
void check_same_options(const Options& options, Communicator& workers, const Deadline& deadline);

}  // namespace dtrain
