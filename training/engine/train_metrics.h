// The task's metrics over the samples that training takes: what the network said of each when it learned from
// it.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "training/task.h"

namespace dtrain {

/// Used by one thread. Costs what add_up() costs in evaluation, and an exchange of its sums at take().
class TrainMetrics {
 public:
  /// Borrows `task`.
  explicit TrainMetrics(const Task& task) : task_(task), sums_(task.sum_count() + 1) {}

  /// A pass: `outputs` in float32, of training, for `batch` of `units` units.
  void add(const Tensors& outputs, const BatchTensors& batch, double units);
  void forget() { std::ranges::fill(sums_, 0.0); }
  /// Collective. Of the samples of all ranks since the last call, those of this start; nothing where there
  /// are none. Throws PeerError.
  std::optional<Evaluation> take(Communicator& communicator, const Deadline& deadline);

 private:
  const Task& task_;
  std::vector<double> sums_;  ///< the task's, and samples
};

}  // namespace dtrain
