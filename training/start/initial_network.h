// The network as training starts: drawn from the seed, or read from other weights, with what options ask of
// its layers.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/strategy.h"
#include "runtime/base/log.h"
#include "runtime/data/source.h"
#include "training/options/train_config.h"
#include "training/task.h"
#include "training/training_data.h"

namespace dtrain {

struct InitialNetwork {
  std::unique_ptr<Module> network;
  std::int64_t parameters = 0;     ///< numbers in it
  std::int64_t trained = 0;        ///< of them, those that are not frozen
  std::string generator_state;     ///< after the weights were drawn
  ParameterKinds kinds;            ///< of its parameters
  OwnOptionsByName own;            ///< what parameters have of their own, by all their names
  std::vector<std::string> notes;  ///< what options did to it, for people
};

/// The network that `config` asks for, on `device`, for samples of `fields`; every call draws the same
/// weights. `sharing`: the workers among which --sync-batch-norm shares a batch, borrowed by the network.
/// Throws UsageError where an option (--init-from, --freeze, --lr-of, --weight-decay-of, --recompute,
/// --sync-batch-norm) or a group of the task does not fit the
/// network, and what reading weights throws.
InitialNetwork make_initial_network(const TrainConfig& config, const Task& task,
                                    std::span<const Field> fields, Communicator& sharing,
                                    const std::shared_ptr<Device>& device, Log& log);

/// What the network is fed for the first `samples` samples of `source`, on `device`.
Tensors example_inputs(const Task& task, const std::shared_ptr<const Source>& source, std::int64_t samples,
                       const std::shared_ptr<Device>& device, const Deadline& deadline);

/// Tries a pass of one sample where an epoch may have one and the network has batch norm: it has no
/// statistics of one value a channel, and whether it meets that depends on shapes within the network.
/// `example`: inputs of one sample. Changes nothing. Throws UsageError that says what to do; better now than
/// after an epoch.
void check_smallest_batch(const TrainConfig& config, const TrainingData& data, Strategy& strategy,
                          int world_size, const std::function<Tensors()>& example);

}  // namespace dtrain
