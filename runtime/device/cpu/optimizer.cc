// The optimizers' updates: the rules of optimizer_rules.h, one pass over all parameters, whose elements the
// threads of a worker share.
#include "runtime/device/optimizer_rules.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {
namespace {

constexpr double kElementNs = 0.5;

/// Updates elements [begin, end). Whether all that was written is finite: looked at on the way, while it is
/// in registers.
template <class T, class Rule>
bool update_slot(const Rule rule, const OptimizerSlot& slot, std::int64_t begin, std::int64_t end) {
  using Word = std::conditional_t<sizeof(Compute<T>) == 8, std::uint64_t, std::uint32_t>;
  T* const param = slot.param.as<T>();
  const T* const grad = slot.grad.as<const T>();
  T *const momentum = slot.momentum.as<T>(), *const variance = slot.variance.as<T>(),
           *const mean = slot.mean.as<T>();
  Word bad = 0;
  const auto store = [&bad](T& to, Compute<T> value) {
    to = cast<T>(value);
    bad |= std::bit_cast<Word>(load(to) * 0);  // 0 or -0 of what is finite, else NaN
  };
  for (std::int64_t i = begin; i < end; ++i) {
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

/// Calls f(slot, begin, end) for parts that together are all elements of all slots: a part of a large one, or
/// many small ones together, is a thread's.
template <class F>
void for_slot_parts(std::span<const OptimizerSlot> slots, const F& f) {
  std::vector<std::int64_t> starts{0};  ///< of each slot, in all elements one behind the other
  for (const OptimizerSlot& slot : slots) starts.push_back(starts.back() + slot.param.numel());
  for_ranges(starts.back(), kElementsOfChunk, kElementNs, [&](std::int64_t begin, std::int64_t end) {
    auto slot =
        static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    for (; begin < end; begin = starts[++slot])
      f(slots[slot], begin - starts[slot], std::min(end, starts[slot + 1]) - starts[slot]);
  });
}

template <class Step>
void update(std::string_view operation, std::span<const OptimizerSlot> slots, const Step& step) {
  std::atomic<bool> finite = true;
  for_slot_parts(slots, [&](const OptimizerSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch_floating(operation, slot.param.dtype, [&](auto tag) {
      using T = decltype(tag);
      rule::visit<Compute<T>>(step, [&](auto rule) {
        if (rule.begin() && !widest([&] { return update_slot<T>(rule, slot, begin, end); })) finite = false;
      });
    });
  });
  if (!finite) rule::DeviceNumbers(step).note_not_finite();
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
void CpuKernels::lion(std::span<const OptimizerSlot> slots, const LionStep& step) {
  update("lion", slots, step);
}
void CpuKernels::lerp(std::span<const OptimizerSlot> slots, const LerpStep& step) {
  update("lerp", slots, step);
}

}  // namespace dtrain::cpu
