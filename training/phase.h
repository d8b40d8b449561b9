// What a step is made of where it is more than a network, a loss and an optimizer: where the run is, phases,
// and what follows an update.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/functional.h"
#include "runtime/nn/module.h"
#include "runtime/optim/optimizer.h"
#include "training/batch_tensors.h"

namespace dtrain {

/// Where in a run something is computed.
struct TrainStep {
  std::int64_t step = 0;   ///< of the run, from 1
  std::int64_t epoch = 0;  ///< from 0
};

/// A loss of training that depends on the step; otherwise as Task::loss().
using StepLoss =
    std::function<Tensor(const Tensors& outputs, const BatchTensors& batch, const TrainStep& at)>;
/// A loss over the samples of all workers, as contrastive losses are: `group` has the workers, each with its
/// outputs of the same micro-batch, and the collectives of parallel/functional.h reach the others' with their
/// gradients. The loss is averaged over the workers; where each has the mean over its own samples against
/// those of all, the gradients are those of one process with the whole batch. Every worker makes the same
/// calls in the same order, of tensors of the same shapes: the workers' shares of a batch must be equal.
///
///     [](const Tensors& outputs, const BatchTensors&, const TrainStep&, const RankGroup& group) {
///       const Tensor keys = all_gather(outputs[1], 0, group, "keys");                    // [W · B, D]
///       …
using GroupLoss = std::function<Tensor(const Tensors& outputs, const BatchTensors& batch, const TrainStep& at,
                                       const RankGroup& group)>;
/// What the network is fed goes in, what the loss is made of comes out.
using StepForward = std::function<Tensors(Module& network, const Tensors& inputs, const TrainStep& at)>;
using AfterUpdate = std::function<void(Module& network, const TrainStep& at)>;

/// A part of a step with a loss and an optimizer of its own, as the two halves of a step of a GAN, or actor
/// and critic. Phases of a step come one after the other, over the same batches; in each only its parameters
/// learn, and its forward sees what the phases before have updated.
struct StepPhase {
  std::string name;                      ///< "discriminator"; in metrics.jsonl
  std::vector<std::string> parameters;   ///< patterns of the names that it updates, as --freeze has them
  StepLoss loss;                         ///< mean over the batch
  StepForward forward = {};              ///< empty: the network's
  OptimizerFactory make_optimizer = {};  ///< empty: the run's
};

}  // namespace dtrain
