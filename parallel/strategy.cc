#include "parallel/strategy.h"

#include "parallel/span_of.h"

namespace dtrain {

void start_backward(const Tensor& loss, double weight, const GradScaler* scaler) {
  if (scaler != nullptr) return loss.backward(scaler->scale_seed(weight));
  weight == 1.0 ? loss.backward() : loss.backward(Tensor::full({}, weight, loss.shared_device()));
}

void apply_update(Optimizer& optimizer, std::span<const Tensor> gradients, GradScaler* scaler,
                  const GradientLimits& limits, const std::function<void()>& before_update) {
  if (scaler != nullptr) scaler->unscale(gradients);
  if (before_update) before_update();
  limit_gradients(gradients, limits);
  optimizer.step();
  if (scaler != nullptr) scaler->update();
}

void agree_on_overflow(const GradScaler& scaler, Communicator& ranks, const Deadline& deadline) {
  ranks.all_reduce(span_of(scaler.found()), ReduceOp::max, "overflow")->wait(deadline);
  scaler.found().mark_modified();
}

}  // namespace dtrain
