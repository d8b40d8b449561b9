// Ranks that hold copies of one network begin with equal ones.
#pragma once

#include "collectives/communicator.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Collective. Throws UsageError on every rank where names, shapes or dtypes of `state` are not rank 0's.
void check_same_model(Communicator& communicator, const NamedTensors& state, const Deadline& deadline);

/// Collective. Copies rank 0's values of `tensors`, which are dense, to all ranks.
void copy_from_first_rank(Communicator& communicator, const NamedTensors& tensors, const Deadline& deadline);

}  // namespace dtrain
