// How a network is split among ranks.
#pragma once

#include "parallel/functional.h"

namespace dtrain {

/// Given to the code that builds a split network (parallel/tensor/layers.h).
struct TensorParallelGroup {
  RankGroup group;        ///< the ranks that share one network
  bool sequence = false;  ///< whether activations between blocks are cut along the sequence
};

}  // namespace dtrain
