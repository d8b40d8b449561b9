// Gradients cross the network as products of two narrow matrices: PowerSGD (Vogels, Karimireddy, Jaggi 2019),
// as torch's powerSGD_hook does it, with error feedback and a warm start. For the buckets of data
// parallelism.
#pragma once

#include <functional>
#include <memory>

#include "parallel/sync/hooks/comm_hook.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

struct PowerSgdOptions {
  int rank = 1;                  ///< columns of the narrow matrices, from 1 on
  std::int64_t start_step = 10;  ///< so many steps are exchanged whole first
  /// A gradient is compressed where that divides its elements by more than this.
  double min_compression_rate = 2;
  std::uint64_t seed = 0;  ///< of the matrices to begin with; the same on all ranks
  /// Those matrices, [columns of the gradient, rank]; empty: standard normal numbers.
  std::function<Tensor(const Dims& shape, const std::shared_ptr<Device>& device)> initial = {};
};

/// What ReducerOptions::exchange takes. A gradient of two or more dimensions is a matrix of its first
/// dimension by the others; others, and small ones, go whole. What is lost in a step is added to the next
/// one's gradients; a step with gradients that are not finite leaves that as it was, with
/// await_step_outcomes() any step that is not made. Twice as much memory as the compressed gradients. Throws
/// UsageError for options that make no sense.
///
///     const auto strategy = make_data_parallel(context, {.exchange = power_sgd({.rank = 4})});
std::shared_ptr<CommHook> power_sgd(const PowerSgdOptions& options);

}  // namespace dtrain
