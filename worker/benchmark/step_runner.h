// A training step that can be taken apart: whole, without its communication, or its communication alone. The
// batch is always the same one and the learning rate 0, so that every step does equal work on equal numbers.
#pragma once

#include <memory>

#include "models/vision/network.h"
#include "parallel/data/data_parallel.h"
#include "runtime/autograd/autocast.h"
#include "runtime/base/log.h"
#include "runtime/base/spans.h"
#include "runtime/optim/grad_scaler.h"
#include "training/batch_tensors.h"
#include "training/recipe.h"

namespace dtrain {

/// One worker's; every rank constructs it and calls it alike.
class StepRunner {
 public:
  /// Opens the recipe's data set and takes one batch of it, builds the network and shares rank 0's weights.
  /// `communicator` and `spans` are borrowed; without spans (null) nothing is recorded, with them each step
  /// leaves the phases "forward", "backward", "communication" and "optimizer". Throws UsageError, DataError,
  /// PeerError.
  StepRunner(const Recipe& recipe, Communicator& communicator, const std::shared_ptr<Device>& device,
             Log& log, SpanRecorder* spans = nullptr);

  /// Forward, backward with all-reduces beside it, the wait for them, optimizer. Throws PeerError.
  void step();
  /// The same, but gradients stay this rank's.
  void compute();
  /// Scales and all-reduces as many bytes in the same buckets, with nothing beside it. Throws PeerError.
  void communicate();

  std::int64_t parameter_count() const { return network_->parameter_count(); }

 private:
  NetworkInput load_batch(Log& log);
  void forward_backward();
  void update();
  Deadline deadline() const { return Deadline::after(recipe_.collective_timeout); }

  const Recipe recipe_;
  Communicator& communicator_;
  const std::shared_ptr<Device> device_;
  SpanRecorder* spans_;
  std::optional<Batch> batch_;
  BatchTensors tensors_;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;
  LowPrecisionWeights low_weights_;
  std::unique_ptr<GradScaler> scaler_;  ///< fp16 only
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Reducer> idle_reducer_;  ///< the same buckets, for communicate()
};

}  // namespace dtrain
