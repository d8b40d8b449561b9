// What each optimizer does to one element, written once for host and device: PyTorch's rules, operation by
// operation. Rules work in the compute type C, as the functors of functors.h do.
#pragma once

#include <cmath>
#include <limits>

#include "runtime/device/functors.h"

namespace dtrain::rule {

/// One element of each of a slot's arrays.
template <class C>
struct Element {
  C param, grad, momentum, variance, mean;
};

/// Of a number as it is stored. Without a branch, so that loops of it are vectorized.
template <class C>
DTRAIN_HOST_DEVICE bool is_not_finite(C stored) {
  constexpr C kMost = std::numeric_limits<C>::max();
  return !(std::abs(stored) <= kMost);
}

/// The numbers of a step that are known only where and when it runs.
class DeviceNumbers {
 public:
  template <class Step>
  explicit DeviceNumbers(const Step& step)
      : skip_(step.gate.skip.template as<const float>()),
        not_finite_(step.gate.skip.data != nullptr && step.gate.skip.numel() > 1
                        ? step.gate.skip.template as<float>() + 1
                        : nullptr),
        skipped_(step.gate.skipped.template as<const std::int64_t>()),
        changes_(step.changes.values.template as<const double>()) {}

  DTRAIN_HOST_DEVICE bool skips() const { return skip_ != nullptr && *skip_ != 0.0F; }
  DTRAIN_HOST_DEVICE bool counts_skipped() const { return skipped_ != nullptr; }
  /// What was written is not finite.
  DTRAIN_HOST_DEVICE void note_not_finite() const {
    if (not_finite_ != nullptr) *not_finite_ = 1.0F;
  }
  DTRAIN_HOST_DEVICE bool any() const { return changes_ != nullptr || counts_skipped(); }
  DTRAIN_HOST_DEVICE double lr(double given) const { return changes_ == nullptr ? given : changes_[0]; }
  /// The number of this step, `given` when it was queued, without those that were skipped.
  DTRAIN_HOST_DEVICE std::int64_t step(std::int64_t given) const {
    if (changes_ != nullptr) given += static_cast<std::int64_t>(changes_[1]);
    return counts_skipped() ? given - *skipped_ : given;
  }

 private:
  const float* skip_;
  float* not_finite_;  ///< null: not needed
  const std::int64_t* skipped_;
  const double* changes_;
};

// A rule is made where its step is queued. Where the step runs, begin() of a copy reads the device's numbers
// and gives false when the step is skipped; then the rule is applied to each element. `kMomentum`,
// `kVariance` and `kMean` say which states it reads and writes: the other members of an Element have no
// value.

template <class C, bool kHasMomentum>
struct Sgd {
  static constexpr bool kMomentum = kHasMomentum, kVariance = false, kMean = false;

  explicit Sgd(const SgdStep& step)
      : momentum(static_cast<C>(step.momentum)),
        keep(static_cast<C>(1 - step.dampening)),
        decay(static_cast<C>(step.weight_decay)),
        nesterov(step.nesterov),
        first(step.first_step),
        exact_lr(step.lr),
        attempts(step.attempts),
        numbers(step) {}

  DTRAIN_HOST_DEVICE bool begin() {
    lr = static_cast<C>(numbers.lr(exact_lr));
    first = first || (numbers.counts_skipped() && attempts >= 0 && numbers.step(attempts) == 0);
    return !numbers.skips();
  }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const {
    C change = x.grad + decay * x.param;
    if constexpr (kMomentum) {
      x.momentum = first ? change : momentum * x.momentum + keep * change;
      change = nesterov ? change + momentum * x.momentum : x.momentum;
    }
    x.param = x.param - lr * change;
  }

  C lr{}, momentum, keep, decay;
  bool nesterov, first;
  double exact_lr;
  std::int64_t attempts;
  DeviceNumbers numbers;
};

/// `kCoupled`: weight decay is part of the gradient.
template <class C, bool kCoupled>
struct AdamW {
  static constexpr bool kMomentum = true, kVariance = true, kMean = false;

  explicit AdamW(const AdamWStep& given)
      : decay(static_cast<C>(given.weight_decay)),
        beta1_rest(static_cast<C>(1 - given.beta1)),
        beta2(static_cast<C>(given.beta2)),
        beta2_rest(static_cast<C>(1 - given.beta2)),
        eps(static_cast<C>(given.eps)),
        exact{given.lr, given.beta1, given.beta2, given.decoupled ? given.weight_decay : 0.0},
        step(given.step),
        numbers(given) {
    set_rates(exact.lr, step);
  }

  DTRAIN_HOST_DEVICE bool begin() {
    if (numbers.skips()) return false;
    if (numbers.any()) set_rates(numbers.lr(exact.lr), numbers.step(step));  // powers are slow on a GPU
    return true;
  }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const {
    C g = x.grad;
    if constexpr (kCoupled) g += decay * x.param;
    x.momentum = x.momentum + beta1_rest * (g - x.momentum);
    x.variance = beta2 * x.variance + beta2_rest * g * g;
    x.param = x.param * shrink - size * (x.momentum / (std::sqrt(x.variance) / root + eps));
  }

  DTRAIN_HOST_DEVICE void set_rates(double lr, std::int64_t number) {
    const auto t = static_cast<double>(number);
    shrink = static_cast<C>(1 - lr * exact.decoupled_decay);
    size = static_cast<C>(lr / (1 - std::pow(exact.beta1, t)));
    root = static_cast<C>(std::sqrt(1 - std::pow(exact.beta2, t)));
  }

  C decay, beta1_rest, beta2, beta2_rest, eps, shrink{}, size{}, root{};
  struct {
    double lr, beta1, beta2, decoupled_decay;
  } exact;
  std::int64_t step;
  DeviceNumbers numbers;
};

template <class C, bool kHasMomentum, bool kCentered>
struct RmsProp {
  static constexpr bool kMomentum = kHasMomentum, kVariance = true, kMean = kCentered;

  explicit RmsProp(const RmsPropStep& step)
      : alpha(static_cast<C>(step.alpha)),
        alpha_rest(static_cast<C>(1 - step.alpha)),
        eps(static_cast<C>(step.eps)),
        decay(static_cast<C>(step.weight_decay)),
        momentum(static_cast<C>(step.momentum)),
        exact_lr(step.lr),
        numbers(step) {}

  DTRAIN_HOST_DEVICE bool begin() {
    lr = static_cast<C>(numbers.lr(exact_lr));
    return !numbers.skips();
  }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const {
    const C g = x.grad + decay * x.param;
    x.variance = alpha * x.variance + alpha_rest * g * g;
    C v = x.variance;
    if constexpr (kMean) {
      x.mean = x.mean + alpha_rest * (g - x.mean);
      v -= x.mean * x.mean;
    }
    C change = g / (std::sqrt(v) + eps);
    if constexpr (kMomentum) change = x.momentum = momentum * x.momentum + change;
    x.param = x.param - lr * change;
  }

  C lr{}, alpha, alpha_rest, eps, decay, momentum;
  double exact_lr;
  DeviceNumbers numbers;
};

template <class C>
struct Adagrad {
  static constexpr bool kMomentum = false, kVariance = true, kMean = false;

  explicit Adagrad(const AdagradStep& given)
      : decay(static_cast<C>(given.weight_decay)),
        eps(static_cast<C>(given.eps)),
        exact_lr(given.lr),
        lr_decay(given.lr_decay),
        step(given.step),
        numbers(given) {}

  DTRAIN_HOST_DEVICE bool begin() {
    const auto earlier = static_cast<double>(numbers.step(step) - 1);
    lr = static_cast<C>(numbers.lr(exact_lr) / (1 + earlier * lr_decay));
    return !numbers.skips();
  }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const {
    const C g = x.grad + decay * x.param;
    x.variance = x.variance + g * g;
    x.param = x.param - lr * (g / (std::sqrt(x.variance) + eps));
  }

  C lr{}, decay, eps;
  double exact_lr, lr_decay;
  std::int64_t step;
  DeviceNumbers numbers;
};

template <class C>
struct Lion {
  static constexpr bool kMomentum = true, kVariance = false, kMean = false;

  explicit Lion(const LionStep& step)
      : beta1(static_cast<C>(step.beta1)),
        beta1_rest(static_cast<C>(1 - step.beta1)),
        beta2(static_cast<C>(step.beta2)),
        beta2_rest(static_cast<C>(1 - step.beta2)),
        exact_lr(step.lr),
        decay(step.weight_decay),
        numbers(step) {}

  DTRAIN_HOST_DEVICE bool begin() {
    const double rate = numbers.lr(exact_lr);
    lr = static_cast<C>(rate);
    shrink = static_cast<C>(1 - rate * decay);
    return !numbers.skips();
  }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const {
    const C between = beta1 * x.momentum + beta1_rest * x.grad;
    x.param = x.param * shrink - lr * functor::Sign{}(between);
    x.momentum = beta2 * x.momentum + beta2_rest * x.grad;
  }

  C lr{}, shrink{}, beta1, beta1_rest, beta2, beta2_rest;
  double exact_lr, decay;
  DeviceNumbers numbers;
};

template <class C>
struct Lerp {
  static constexpr bool kMomentum = false, kVariance = false, kMean = false;

  explicit Lerp(const LerpStep& step) : weight(static_cast<C>(step.weight)), numbers(step) {}

  DTRAIN_HOST_DEVICE bool begin() const { return !numbers.skips(); }

  DTRAIN_HOST_DEVICE void operator()(Element<C>& x) const { x.param = x.param + weight * (x.grad - x.param); }

  C weight;
  DeviceNumbers numbers;
};

/// Calls `visitor` with the rule of `step` that works in C.
template <class C, class Visitor>
void visit(const SgdStep& step, Visitor&& visitor) {
  step.momentum == 0 ? visitor(Sgd<C, false>(step)) : visitor(Sgd<C, true>(step));
}

template <class C, class Visitor>
void visit(const AdamWStep& step, Visitor&& visitor) {
  const bool coupled = !step.decoupled && step.weight_decay != 0;
  coupled ? visitor(AdamW<C, true>(step)) : visitor(AdamW<C, false>(step));
}

template <class C, class Visitor>
void visit(const RmsPropStep& step, Visitor&& visitor) {
  if (step.centered) {
    step.momentum == 0 ? visitor(RmsProp<C, false, true>(step)) : visitor(RmsProp<C, true, true>(step));
  } else {
    step.momentum == 0 ? visitor(RmsProp<C, false, false>(step)) : visitor(RmsProp<C, true, false>(step));
  }
}

template <class C, class Visitor>
void visit(const AdagradStep& step, Visitor&& visitor) {
  visitor(Adagrad<C>(step));
}

template <class C, class Visitor>
void visit(const LionStep& step, Visitor&& visitor) {
  visitor(Lion<C>(step));
}

template <class C, class Visitor>
void visit(const LerpStep& step, Visitor&& visitor) {
  visitor(Lerp<C>(step));
}

}  // namespace dtrain::rule
