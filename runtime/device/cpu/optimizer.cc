// The optimizers' updates, PyTorch's rules operation by operation, one pass over each parameter.
#include <cmath>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"

namespace dtrain::cpu {
namespace {

template <class T>
struct SgdRule {
  explicit SgdRule(const SgdStep& step)
      : lr(static_cast<T>(step.lr)),
        momentum(static_cast<T>(step.momentum)),
        keep(static_cast<T>(1 - step.dampening)),
        decay(static_cast<T>(step.weight_decay)),
        nesterov(step.nesterov),
        first(step.first_step || (step.gate.skipped.data != nullptr &&
                                  step.attempts == *step.gate.skipped.as<const std::int64_t>())) {}
  T lr, momentum, keep, decay;
  bool nesterov, first;
};

template <class T>
void sgd_plain(std::int64_t n, const SgdRule<Compute<T>>& rule, T* param, const T* grad) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto p = load(param[i]);
    param[i] = cast<T>(p - rule.lr * (load(grad[i]) + rule.decay * p));
  }
}

template <class T>
void sgd_momentum(std::int64_t n, const SgdRule<Compute<T>>& rule, T* param, const T* grad, T* momentum) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto p = load(param[i]);
    const auto g = load(grad[i]) + rule.decay * p;
    const auto buffer = rule.first ? g : rule.momentum * load(momentum[i]) + rule.keep * g;
    momentum[i] = cast<T>(buffer);
    param[i] = cast<T>(p - rule.lr * (rule.nesterov ? g + rule.momentum * buffer : buffer));
  }
}

template <class T>
struct AdamWRule {
  explicit AdamWRule(const AdamWStep& step)
      : shrink(static_cast<T>(1 - step.lr * step.weight_decay)),
        beta1_rest(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        beta2_rest(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)) {
    const std::int64_t skipped =
        step.gate.skipped.data == nullptr ? 0 : *step.gate.skipped.as<const std::int64_t>();
    const auto t = static_cast<double>(step.step - skipped);
    size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, t)));
    root = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, t)));
  }
  T shrink, beta1_rest, beta2, beta2_rest, eps, size, root;
};

template <class T>
void adamw_loop(std::int64_t n, const AdamWRule<Compute<T>>& rule, T* param, const T* grad, T* momentum,
                T* variance) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto g = load(grad[i]);
    const auto m = load(momentum[i]) + rule.beta1_rest * (g - load(momentum[i]));
    const auto v = rule.beta2 * load(variance[i]) + rule.beta2_rest * g * g;
    momentum[i] = cast<T>(m);
    variance[i] = cast<T>(v);
    const auto denominator = std::sqrt(v) / rule.root + rule.eps;
    param[i] = cast<T>(load(param[i]) * rule.shrink - rule.size * (m / denominator));
  }
}

/// The step as it is now, where that changes from run to run.
SgdStep current(SgdStep step) {
  const auto* const now = step.changes.values.as<const double>();
  if (now == nullptr) return step;
  step.lr = now[0];
  if (step.attempts >= 0) step.attempts += static_cast<std::int64_t>(now[1]);
  return step;
}

AdamWStep current(AdamWStep step) {
  const auto* const now = step.changes.values.as<const double>();
  if (now == nullptr) return step;
  step.lr = now[0];
  step.step += static_cast<std::int64_t>(now[1]);
  return step;
}

bool is_skipped(const StepGate& gate) {
  return gate.skip.data != nullptr && *gate.skip.as<const float>() != 0.0F;
}

}  // namespace

void CpuKernels::sgd(std::span<const OptimizerSlot> slots, const SgdStep& given) {
  const SgdStep step = current(given);
  if (is_skipped(step.gate)) return;
  require_slots(slots, step);
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating("sgd", slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      const SgdRule<Compute<T>> rule(step);
      const std::int64_t n = slot.param.numel();
      if (step.momentum == 0) return sgd_plain<T>(n, rule, slot.param.as<T>(), slot.grad.as<const T>());
      sgd_momentum<T>(n, rule, slot.param.as<T>(), slot.grad.as<const T>(), slot.momentum.as<T>());
    });
  }
}

void CpuKernels::adamw(std::span<const OptimizerSlot> slots, const AdamWStep& given) {
  const AdamWStep step = current(given);
  if (is_skipped(step.gate)) return;
  require_slots(slots, step);
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating("adamw", slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      adamw_loop<T>(slot.param.numel(), AdamWRule<Compute<T>>(step), slot.param.as<T>(),
                    slot.grad.as<const T>(), slot.momentum.as<T>(), slot.variance.as<T>());
    });
  }
}

}  // namespace dtrain::cpu
