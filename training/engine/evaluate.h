// Evaluation that counts every sample exactly once, whatever the number of ranks.
#pragma once

#include "collectives/communicator.h"
#include "runtime/data/source.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct Evaluation {
  double loss = 0;      ///< mean cross-entropy over all samples
  double accuracy = 0;  ///< share of samples whose largest logit is the label, 0 … 1
  std::int64_t samples = 0;
};

/// Runs `network` over all of `source`, each rank over its share in batches of `batch_size`, and sums over
/// ranks. Every rank must call it and gets the same result. Leaves the network in training mode. `patience`
/// bounds each wait for a batch and, beyond the time this rank took for its share, that for the other ranks.
Evaluation evaluate(Module& network, const std::shared_ptr<const Source>& source, std::int64_t batch_size,
                    Communicator& communicator, const std::shared_ptr<Device>& device, Duration patience);

}  // namespace dtrain
