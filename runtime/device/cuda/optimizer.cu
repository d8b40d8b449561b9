// The optimizers' updates: the rules of optimizer_rules.h, one launch for all parameters of a dtype.
#include "runtime/device/optimizer_rules.h"

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {
namespace {

/// Whether all that was written is finite.
template <class T, class Rule>
__device__ bool update_element(const Rule& rule, const SlotEntry& slot, std::int64_t i) {
  T& param = static_cast<T*>(slot.param)[i];
  T *const momentum = static_cast<T*>(slot.momentum) + i,
           *const variance = static_cast<T*>(slot.variance) + i, *const mean = static_cast<T*>(slot.mean) + i;
  rule::Element<Compute<T>> x{load(param), load(static_cast<const T*>(slot.grad)[i]), {}, {}, {}};
  if constexpr (Rule::kMomentum) x.momentum = load(*momentum);
  if constexpr (Rule::kVariance) x.variance = load(*variance);
  if constexpr (Rule::kMean) x.mean = load(*mean);
  rule(x);
  bool bad = false;
  const auto store = [&bad](T& to, Compute<T> value) {
    to = cast<T>(value);
    bad = bad || rule::is_not_finite(static_cast<Compute<T>>(load(to)));
  };
  if constexpr (Rule::kMomentum) store(*momentum, x.momentum);
  if constexpr (Rule::kVariance) store(*variance, x.variance);
  if constexpr (Rule::kMean) store(*mean, x.mean);
  store(param, x.param);
  return !bad;
}

/// A block takes one chunk.
template <class T, class Rule>
__global__ void step_kernel(SlotTable table, Rule rule) {
  if (!rule.begin()) return;
  bool finite = true;
  for (std::int64_t at = blockIdx.x; at < table.chunk_count; at += gridDim.x) {
    const SlotChunk chunk = table.chunks[at];
    const SlotEntry slot = table.entries[chunk.slot];
    const std::int64_t end = min(slot.count, chunk.begin + kChunkElements);
    for (std::int64_t i = chunk.begin + threadIdx.x; i < end; i += blockDim.x)
      finite = update_element<T>(rule, slot, i) && finite;
  }
  if (!finite) rule.numbers.note_not_finite();
}

template <class Step>
void update(const Context& context, SlotTables& tables, std::span<const OptimizerSlot> slots,
            const Step& step) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::vector<SlotEntry> entries;
    for (const OptimizerSlot& slot : slots) {
      if (slot.param.dtype != dtype || slot.param.numel() == 0) continue;
      entries.push_back({slot.param.data, slot.grad.data, slot.momentum.data, slot.variance.data,
                         slot.mean.data, slot.param.numel()});
    }
    if (entries.empty()) continue;
    const SlotTable table = tables.find(entries);
    dispatch_floating("optimizer step", dtype, [&](auto tag) {
      using T = decltype(tag);
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(table.chunk_count, INT32_MAX));
      rule::visit<Compute<T>>(step, [&](auto rule) {
        DTRAIN_LAUNCH("optimizer step", context.stream, blocks, kThreads, (step_kernel<T, decltype(rule)>),
                      table, rule);
      });
    });
  }
}

}  // namespace

void CudaKernels::sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  update(context_, *slot_tables_, slots, step);
}
void CudaKernels::adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) {
  update(context_, *slot_tables_, slots, step);
}
void CudaKernels::rmsprop(std::span<const OptimizerSlot> slots, const RmsPropStep& step) {
  update(context_, *slot_tables_, slots, step);
}
void CudaKernels::adagrad(std::span<const OptimizerSlot> slots, const AdagradStep& step) {
  update(context_, *slot_tables_, slots, step);
}

}  // namespace dtrain::cuda
