// Evaluation that counts every sample exactly once, whatever the number of ranks.
#pragma once

#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "parallel/strategy.h"
#include "training/task.h"

namespace dtrain {

struct EvaluateOptions {
  std::int64_t batch_size = 1;
  DataShare share = {};   ///< which samples this rank takes, in one run of consecutive ones
  bool counts = true;     ///< whether `network` gives outputs here (Strategy::holds_outputs)
  bool together = false;  ///< every rank calls `network` as often as the one that has most batches
  Duration
      patience{};  ///< bounds each wait for a batch and, beyond the time this rank took, that for the others
};

/// A network's outputs as tasks get them: those that autocast left in a low precision in float32, recorded.
Tensors in_full_precision(Tensors outputs);

/// Runs `network`, which is in evaluation, over this rank's share of `source`, and adds up over the ranks of
/// `communicator` what `task` counts. Collective; every rank gets the same result. Nothing is recorded for
/// backward.
Evaluation evaluate(const Task& task, const std::function<Tensors(const Tensors& inputs)>& network,
                    const std::shared_ptr<const Source>& source, const EvaluateOptions& options,
                    Communicator& communicator, const std::shared_ptr<Device>& device);

}  // namespace dtrain
