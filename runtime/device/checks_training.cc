// Checks of arguments: losses, optimizers and loss scaling.
#include "runtime/device/checked_kernels.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::checks {
namespace {

/// One value for each row of `matrix` [R, C].
void require_row_values(std::string_view operation, std::string_view argument, const View& values,
                        const View& matrix, DType dtype) {
  require_shape(operation, argument, values, {matrix.shape[0]});
  require_dtype(operation, argument, values, dtype);
}

void require_number(std::string_view operation, std::string_view argument, const View& view) {
  require_shape(operation, argument, view, {1});
  require_dtype(operation, argument, view, DType::f32);
}

void require_slot_array(std::string_view operation, std::string_view argument, const View& view,
                        const View& param) {
  require_like(operation, argument, view, param);
  if (view.data == nullptr && param.numel() != 0) refuse(operation, as_text(argument) + " has no data");
  for (int i = 0; i < view.rank(); ++i) {
    if (view.shape[i] == 1 || view.strides[i] == param.strides[i]) continue;
    refuse(operation, as_text(argument) + " expected the parameter's strides " + param.strides.to_string() +
                          ", got " + view.strides.to_string());
  }
}

/// Dense in some order of its dimensions: each stride is the product of the extents inside it.
bool is_dense(const View& view) {
  std::int64_t expected = 1;
  for (int found = 0; found < view.rank(); ++found) {
    int at = 0;
    while (at < view.rank() && (view.shape[at] == 1 || view.strides[at] != expected)) ++at;
    if (at == view.rank()) break;
    expected *= view.shape[at];
  }
  return expected == view.numel();
}

void require_parameter(std::string_view operation, const View& view) {
  if (!is_floating(view.dtype)) refuse_dtype(operation, view.dtype);
  if (view.numel() == 0 || is_dense(view)) return;
  refuse(operation, as_text("param") + " expected a dense array, got shape " + view.shape.to_string() +
                        " with strides " + view.strides.to_string());
}

/// A slot of an optimizer step: the parameter is dense in any order of its dimensions; the gradient, and
/// states that the step uses, lie as it does.
void require_slot(std::string_view operation, const OptimizerSlot& slot, bool momentum, bool variance,
                  bool mean) {
  require_parameter(operation, slot.param);
  require_slot_array(operation, "grad", slot.grad, slot.param);
  if (momentum) require_slot_array(operation, "momentum", slot.momentum, slot.param);
  if (variance) require_slot_array(operation, "variance", slot.variance, slot.param);
  if (mean) require_slot_array(operation, "mean", slot.mean, slot.param);
}

}  // namespace

void log_softmax(const View& in, const View& out) {
  require_rank("log_softmax", "in", in, 2);
  require_like("log_softmax", "out", out, in);
}

void cross_entropy(const View& logits, const View& target, IgnoredTarget /*ignored*/, const View& log_probs,
                   const View& losses) {
  require_rank("cross_entropy", "logits", logits, 2);
  require_like("cross_entropy", "log_probs", log_probs, logits);
  require_row_values("cross_entropy", "target", target, logits, DType::i64);
  require_row_values("cross_entropy", "losses", losses, logits, logits.dtype);
}

void cross_entropy_backward(const View& log_probs, const View& target, IgnoredTarget /*ignored*/,
                            const View& grad_losses, const View& grad_logits) {
  constexpr std::string_view kName = "cross_entropy_backward";
  require_rank(kName, "log_probs", log_probs, 2);
  require_like(kName, "grad_logits", grad_logits, log_probs);
  require_row_values(kName, "target", target, log_probs, DType::i64);
  require_row_values(kName, "grad_losses", grad_losses, log_probs, log_probs.dtype);
}

void cross_entropy_slopes(const View& logits, const View& target, IgnoredTarget /*ignored*/,
                          const View& losses, const View& slopes) {
  constexpr std::string_view kName = "cross_entropy_slopes";
  require_rank(kName, "logits", logits, 2);
  if (logits.dtype != DType::f32 && logits.dtype != DType::f64) refuse_dtype(kName, logits.dtype);
  require_row_values(kName, "target", target, logits, DType::i64);
  require_row_values(kName, "losses", losses, logits, logits.dtype);
  if (slopes.data == nullptr) return;
  require_shape(kName, "slopes", slopes, logits.shape);
  const bool rounds = logits.dtype == DType::f32 && is_half(slopes.dtype);
  if (!rounds) require_dtype(kName, "slopes", slopes, logits.dtype);
}

void sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  for (const OptimizerSlot& slot : slots) require_slot("sgd", slot, step.momentum != 0, false, false);
}

void adamw(std::span<const OptimizerSlot> slots, const AdamWStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) require_slot("adamw", slot, true, true, false);
}

void rmsprop(std::span<const OptimizerSlot> slots, const RmsPropStep& step) {
  for (const OptimizerSlot& slot : slots)
    require_slot("rmsprop", slot, step.momentum != 0, true, step.centered);
}

void adagrad(std::span<const OptimizerSlot> slots, const AdagradStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) require_slot("adagrad", slot, false, true, false);
}

void lion(std::span<const OptimizerSlot> slots, const LionStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) require_slot("lion", slot, true, false, false);
}

void lerp(std::span<const OptimizerSlot> slots, const LerpStep& /*step*/) {
  for (const OptimizerSlot& slot : slots) require_slot("lerp", slot, false, false, false);
}

void find_not_finite(std::span<const View> /*values*/, const View& found) {
  require_number("find_not_finite", "found", found);
}

void unscale(std::span<const View> /*gradients*/, const View& scale, const View& found) {
  require_number("unscale", "scale", scale);
  require_number("unscale", "found", found);
}

void update_loss_scale(const LossScaleRule& /*rule*/, const LossScaleState& /*state*/) {}

}  // namespace dtrain::checks
