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

std::int64_t skipped_before(const StepGate& gate) {
  return gate.skipped.data == nullptr ? 0 : *gate.skipped.as<const std::int64_t>();
}

template <class T>
struct AdamWRule {
  explicit AdamWRule(const AdamWStep& step)
      : shrink(step.decoupled ? static_cast<T>(1 - step.lr * step.weight_decay) : T{1}),
        decay(step.decoupled ? T{0} : static_cast<T>(step.weight_decay)),
        beta1_rest(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        beta2_rest(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)) {
    const auto t = static_cast<double>(step.step - skipped_before(step.gate));
    size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, t)));
    root = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, t)));
  }
  T shrink, decay, beta1_rest, beta2, beta2_rest, eps, size, root;
};

/// `Coupled`: weight decay is part of the gradient.
template <bool Coupled, class T>
void adamw_loop(std::int64_t n, const AdamWRule<Compute<T>>& rule, T* param, const T* grad, T* momentum,
                T* variance) {
  for (std::int64_t i = 0; i < n; ++i) {
    auto g = load(grad[i]);
    if constexpr (Coupled) g += rule.decay * load(param[i]);
    const auto m = load(momentum[i]) + rule.beta1_rest * (g - load(momentum[i]));
    const auto v = rule.beta2 * load(variance[i]) + rule.beta2_rest * g * g;
    momentum[i] = cast<T>(m);
    variance[i] = cast<T>(v);
    const auto denominator = std::sqrt(v) / rule.root + rule.eps;
    param[i] = cast<T>(load(param[i]) * rule.shrink - rule.size * (m / denominator));
  }
}

template <class T>
struct RmsPropRule {
  explicit RmsPropRule(const RmsPropStep& step)
      : lr(static_cast<T>(step.lr)),
        alpha(static_cast<T>(step.alpha)),
        alpha_rest(static_cast<T>(1 - step.alpha)),
        eps(static_cast<T>(step.eps)),
        decay(static_cast<T>(step.weight_decay)),
        momentum(static_cast<T>(step.momentum)) {}
  T lr, alpha, alpha_rest, eps, decay, momentum;
};

template <bool Centered, bool HasMomentum, class T>
void rmsprop_loop(const RmsPropRule<Compute<T>>& rule, const OptimizerSlot& slot) {
  T* const param = slot.param.as<T>();
  const T* const grad = slot.grad.as<const T>();
  T *const buffer = slot.momentum.as<T>(), *const square = slot.variance.as<T>(),
           *const mean = slot.mean.as<T>();
  const std::int64_t n = slot.param.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto p = load(param[i]);
    const auto g = load(grad[i]) + rule.decay * p;
    auto v = rule.alpha * load(square[i]) + rule.alpha_rest * g * g;
    square[i] = cast<T>(v);
    if constexpr (Centered) {
      const auto m = load(mean[i]) + rule.alpha_rest * (g - load(mean[i]));
      mean[i] = cast<T>(m);
      v -= m * m;
    }
    auto change = g / (std::sqrt(v) + rule.eps);
    if constexpr (HasMomentum) {
      change = rule.momentum * load(buffer[i]) + change;
      buffer[i] = cast<T>(change);
    }
    param[i] = cast<T>(p - rule.lr * change);
  }
}

template <class T>
void adagrad_loop(const AdagradStep& step, const OptimizerSlot& slot) {
  using C = Compute<T>;
  const auto earlier = static_cast<double>(step.step - skipped_before(step.gate) - 1);
  const C rate = static_cast<C>(step.lr / (1 + earlier * step.lr_decay));
  const C decay = static_cast<C>(step.weight_decay), eps = static_cast<C>(step.eps);
  T* const param = slot.param.as<T>();
  const T* const grad = slot.grad.as<const T>();
  T* const sum = slot.variance.as<T>();
  const std::int64_t n = slot.param.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    const C p = load(param[i]);
    const C g = load(grad[i]) + decay * p;
    const C total = load(sum[i]) + g * g;
    sum[i] = cast<T>(total);
    param[i] = cast<T>(p - rate * (g / (std::sqrt(total) + eps)));
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

template <class Step>
Step current_counted(Step step) {
  const auto* const now = step.changes.values.template as<const double>();
  if (now == nullptr) return step;
  step.lr = now[0];
  step.step += static_cast<std::int64_t>(now[1]);
  return step;
}

RmsPropStep current(RmsPropStep step) {
  if (const auto* const now = step.changes.values.as<const double>()) step.lr = now[0];
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
  const AdamWStep step = current_counted(given);
  if (is_skipped(step.gate)) return;
  require_slots(slots, step);
  const bool coupled = !step.decoupled && step.weight_decay != 0;
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating("adamw", slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      const auto loop = coupled ? adamw_loop<true, T> : adamw_loop<false, T>;
      loop(slot.param.numel(), AdamWRule<Compute<T>>(step), slot.param.as<T>(), slot.grad.as<const T>(),
           slot.momentum.as<T>(), slot.variance.as<T>());
    });
  }
}

void CpuKernels::rmsprop(std::span<const OptimizerSlot> slots, const RmsPropStep& given) {
  const RmsPropStep step = current(given);
  if (is_skipped(step.gate)) return;
  require_slots(slots, step);
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating("rmsprop", slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      const RmsPropRule<Compute<T>> rule(step);
      if (step.momentum != 0) {
        return step.centered ? rmsprop_loop<true, true, T>(rule, slot)
                             : rmsprop_loop<false, true, T>(rule, slot);
      }
      return step.centered ? rmsprop_loop<true, false, T>(rule, slot)
                           : rmsprop_loop<false, false, T>(rule, slot);
    });
  }
}

void CpuKernels::adagrad(std::span<const OptimizerSlot> slots, const AdagradStep& given) {
  const AdagradStep step = current_counted(given);
  if (is_skipped(step.gate)) return;
  require_slots(slots, step);
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating("adagrad", slot.param.dtype,
                      [&](auto tag) { adagrad_loop<decltype(tag)>(step, slot); });
  }
}

}  // namespace dtrain::cpu
