// The optimizers' updates: the rules of optimizer_rules.h, one launch for all parameters of a dtype.
#include "runtime/device/optimizer_rules.h"

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/loads.cuh"
#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {
namespace {

constexpr int kBlocksResident = 8;  // of one multiprocessor: more would only begin again

/// Elements i to i + V - 1 of a slot. Whether all that was written is finite.
template <int V, class T, class Rule>
__device__ __forceinline__ bool update_pack(const Rule& rule, const SlotEntry& slot, std::int64_t i) {
  using P = Pack<T, V>;
  const auto at = [i](void* array) { return reinterpret_cast<P*>(in_global(static_cast<T*>(array) + i)); };
  const P grad = *reinterpret_cast<const P*>(in_global(static_cast<const T*>(slot.grad) + i));
  P param = *at(slot.param), momentum, variance, mean;
  if constexpr (Rule::kMomentum) momentum = *at(slot.momentum);
  if constexpr (Rule::kVariance) variance = *at(slot.variance);
  if constexpr (Rule::kMean) mean = *at(slot.mean);
  bool bad = false;
  const auto store = [&bad](T& to, Compute<T> value) {
    to = cast<T>(value);
    bad = bad || rule::is_not_finite(static_cast<Compute<T>>(load(to)));
  };
#pragma unroll
  for (int v = 0; v < V; ++v) {
    rule::Element<Compute<T>> x{load(param.at[v]), load(grad.at[v]), {}, {}, {}};
    if constexpr (Rule::kMomentum) x.momentum = load(momentum.at[v]);
    if constexpr (Rule::kVariance) x.variance = load(variance.at[v]);
    if constexpr (Rule::kMean) x.mean = load(mean.at[v]);
    rule(x);
    if constexpr (Rule::kMomentum) store(momentum.at[v], x.momentum);
    if constexpr (Rule::kVariance) store(variance.at[v], x.variance);
    if constexpr (Rule::kMean) store(mean.at[v], x.mean);
    store(param.at[v], x.param);
  }
  if constexpr (Rule::kMomentum) *at(slot.momentum) = momentum;
  if constexpr (Rule::kVariance) *at(slot.variance) = variance;
  if constexpr (Rule::kMean) *at(slot.mean) = mean;
  *at(slot.param) = param;
  return !bad;
}

/// rule.begin(), by one thread for the whole block: its powers in double precision are slow.
template <class Rule>
__device__ bool begin_together(Rule& rule) {
  alignas(Rule) __shared__ unsigned char begun[sizeof(Rule)];
  __shared__ bool runs;
  if (threadIdx.x == 0) {
    runs = rule.begin();
    memcpy(begun, &rule, sizeof(Rule));
  }
  __syncthreads();
  memcpy(&rule, begun, sizeof(Rule));
  return runs;
}

/// A block takes one chunk after the other.
template <class T, class Rule>
__global__ void step_kernel(SlotTable table, Rule rule) {
  constexpr int V = kWide<T>;
  if (!begin_together(rule)) return;
  bool finite = true;
  for (std::int64_t at = blockIdx.x; at < table.chunk_count; at += gridDim.x) {
    const SlotChunk chunk = table.chunks[at];
    const SlotEntry slot = table.entries[chunk.slot];
    const std::int64_t end = min(slot.count, chunk.begin + kChunkElements);
    const bool wide = is_aligned(slot.param, 16) && is_aligned(slot.grad, 16) &&
                      is_aligned(slot.momentum, 16) && is_aligned(slot.variance, 16) &&
                      is_aligned(slot.mean, 16);
    const std::int64_t packed = wide ? chunk.begin + (end - chunk.begin) / V * V : chunk.begin;
    for (std::int64_t i = chunk.begin + threadIdx.x * V; i < packed; i += blockDim.x * V)
      finite = update_pack<V, T>(rule, slot, i) && finite;
    for (std::int64_t i = packed + threadIdx.x; i < end; i += blockDim.x)
      finite = update_pack<1, T>(rule, slot, i) && finite;
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
      const std::int64_t resident = static_cast<std::int64_t>(context.multiprocessors) * kBlocksResident;
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(table.chunk_count, resident));
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
void CudaKernels::lion(std::span<const OptimizerSlot> slots, const LionStep& step) {
  update(context_, *slot_tables_, slots, step);
}
void CudaKernels::lerp(std::span<const OptimizerSlot> slots, const LerpStep& step) {
  update(context_, *slot_tables_, slots, step);
}

}  // namespace dtrain::cuda
