// Means over ranks.
#pragma once

#include "collectives/communicator.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Collective. Each of the dense `tensors`, in place, becomes its mean over `ranks`, which pass the same
/// names in the same order; each is divided before it is added up. Throws PeerError.
void average(const NamedTensors& tensors, Communicator& ranks, const Deadline& deadline);

/// Those of `tensors` that have a mean: counts are the same everywhere.
NamedTensors floating(NamedTensors tensors);

}  // namespace dtrain
