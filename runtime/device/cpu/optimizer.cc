// The optimizers' updates: the rules of optimizer_rules.h, one pass over each parameter.
#include "runtime/device/optimizer_rules.h"

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"

namespace dtrain::cpu {
namespace {

template <class T, class Rule>
void update_slot(const Rule rule, const OptimizerSlot& slot) {
  T* const param = slot.param.as<T>();
  const T* const grad = slot.grad.as<const T>();
  T *const momentum = slot.momentum.as<T>(), *const variance = slot.variance.as<T>(),
           *const mean = slot.mean.as<T>();
  const std::int64_t n = slot.param.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    rule::Element<Compute<T>> x{load(param[i]), load(grad[i]), {}, {}, {}};
    if constexpr (Rule::kMomentum) x.momentum = load(momentum[i]);
    if constexpr (Rule::kVariance) x.variance = load(variance[i]);
    if constexpr (Rule::kMean) x.mean = load(mean[i]);
    rule(x);
    if constexpr (Rule::kMomentum) momentum[i] = cast<T>(x.momentum);
    if constexpr (Rule::kVariance) variance[i] = cast<T>(x.variance);
    if constexpr (Rule::kMean) mean[i] = cast<T>(x.mean);
    param[i] = cast<T>(x.param);
  }
}

template <class Step>
void update(std::string_view operation, std::span<const OptimizerSlot> slots, const Step& step) {
  require_slots(slots, step);
  for (const OptimizerSlot& slot : slots) {
    dispatch_floating(operation, slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      rule::visit<Compute<T>>(step, [&](auto rule) {
        if (rule.begin()) update_slot<T>(rule, slot);
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
