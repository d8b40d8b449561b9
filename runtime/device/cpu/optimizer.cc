// The optimizers' updates: the rules of optimizer_rules.h, one pass over each parameter.
#include "runtime/device/optimizer_rules.h"

#include <bit>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

/// Whether all that was written is finite: looked at on the way, while it is in registers.
template <class T, class Rule>
bool update_slot(const Rule rule, const OptimizerSlot& slot) {
  using Word = std::conditional_t<sizeof(Compute<T>) == 8, std::uint64_t, std::uint32_t>;
  T* const param = slot.param.as<T>();
  const T* const grad = slot.grad.as<const T>();
  T *const momentum = slot.momentum.as<T>(), *const variance = slot.variance.as<T>(),
           *const mean = slot.mean.as<T>();
  const std::int64_t n = slot.param.numel();
  Word bad = 0;
  const auto store = [&bad](T& to, Compute<T> value) {
    to = cast<T>(value);
    bad |= std::bit_cast<Word>(load(to) * 0);  // 0 or -0 of what is finite, else NaN
  };
  for (std::int64_t i = 0; i < n; ++i) {
    rule::Element<Compute<T>> x{load(param[i]), load(grad[i]), {}, {}, {}};
    if constexpr (Rule::kMomentum) x.momentum = load(momentum[i]);
    if constexpr (Rule::kVariance) x.variance = load(variance[i]);
    if constexpr (Rule::kMean) x.mean = load(mean[i]);
    rule(x);
    if constexpr (Rule::kMomentum) store(momentum[i], x.momentum);
    if constexpr (Rule::kVariance) store(variance[i], x.variance);
    if constexpr (Rule::kMean) store(mean[i], x.mean);
    store(param[i], x.param);
  }
  return bad << 1 == 0;
}

template <class Step>
void update(std::string_view operation, std::span<const OptimizerSlot> slots, const Step& step) {
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating(operation, slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      rule::visit<Compute<T>>(step, [&](auto rule) {
        if (!rule.begin()) return;
        if (!widest([&]() { return update_slot<T>(rule, slot); })) rule.numbers.note_not_finite();
      });
    });
  }
}

}  // namespace

void CpuKernels::sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  update("sgd", slots, step);
}
void CpuKernels::adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) {
  update("adamw", slots, step);
}
void CpuKernels::rmsprop(std::span<const OptimizerSlot> slots, const RmsPropStep& step) {
  update("rmsprop", slots, step);
}
void CpuKernels::adagrad(std::span<const OptimizerSlot> slots, const AdagradStep& step) {
  update("adagrad", slots, step);
}

}  // namespace dtrain::cpu
