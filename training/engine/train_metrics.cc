#include "training/engine/train_metrics.h"

#include "runtime/autograd/grad_mode.h"

namespace dtrain {

void TrainMetrics::add(const Tensors& outputs, const BatchTensors& batch, double units) {
  const NoGrad no_grad;
  task_.add_up(outputs, batch, units, std::span(sums_).first(sums_.size() - 1));
  sums_.back() += static_cast<double>(batch.size());
}

std::optional<Evaluation> TrainMetrics::take(Communicator& communicator, const Deadline& deadline) {
  communicator
      .all_reduce({.data = sums_.data(), .count = sums_.size(), .dtype = DType::f64}, ReduceOp::sum,
                  "training metrics")
      ->wait(deadline);
  const auto samples = static_cast<std::int64_t>(sums_.back());
  std::optional<Evaluation> found;
  if (samples > 0) {
    found = task_.evaluation(std::span<const double>(sums_).first(sums_.size() - 1), samples);
    found->samples = samples;
  }
  forget();
  return found;
}

}  // namespace dtrain
