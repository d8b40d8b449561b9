#include "parallel/strategy.h"

namespace dtrain {

void start_backward(const Tensor& loss, double weight, const GradScaler* scaler) {
  if (scaler != nullptr) return loss.backward(scaler->scale_seed(weight));
  weight == 1.0 ? loss.backward() : loss.backward(Tensor::full({}, weight, loss.shared_device()));
}

void apply_update(Optimizer& optimizer, GradScaler* scaler, const GradientLimits& limits) {
  if (scaler != nullptr) scaler->unscale(optimizer.gradients());
  limit_gradients(optimizer.gradients(), limits);
  optimizer.step();
  if (scaler != nullptr) scaler->update();
}

}  // namespace dtrain
