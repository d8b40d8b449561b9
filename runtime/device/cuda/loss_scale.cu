// What is not finite, and dynamic loss scaling: unscaling with the check for overflow, and the rule that
// moves the scale. The decision stays on the device, and all gradients of a dtype are one launch.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/loads.cuh"
#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {
namespace {

constexpr int kAhead = 8;  // loads of a thread that are on their way

/// Calls `look(value, address)` for each element of the table's slots; a block takes one chunk.
template <class T, class Look>
__device__ void for_each_element(const SlotTable& table, Look look) {
  for (std::int64_t at = blockIdx.x; at < table.chunk_count; at += gridDim.x) {
    const SlotChunk chunk = table.chunks[at];
    const SlotEntry slot = table.entries[chunk.slot];
    const std::int64_t end = min(slot.count, chunk.begin + kChunkElements);
    T* const data = in_global(static_cast<T*>(slot.param));
    for_each_ahead<kAhead>(
        chunk.begin + threadIdx.x, end, static_cast<std::int64_t>(kThreads),
        [&](std::int64_t i) { return data[i]; },
        [&](const T& value, std::int64_t i) { look(value, data + i); });
  }
}

template <class T>
__global__ void unscale_kernel(SlotTable table, const float* scale, float* found) {
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(*scale));
  for_each_element<T>(table, [&](const T& gradient, T* at) {
    const Compute<T> value = load(gradient) * static_cast<Compute<T>>(inverse);
    if (!(value * 0 == 0)) *found = 1.0F;  // every thread that writes writes the same
    *at = cast<T>(value);
  });
}

template <class T>
__global__ void find_kernel(SlotTable table, float* found) {
  for_each_element<T>(table, [&](const T& value, const T*) {
    if (!(load(value) * 0 == 0)) *found = 1.0F;
  });
}

/// Calls `launch(tag, table, blocks)` for each dtype of which there are some of `views`.
template <class Launch>
void for_each_dtype(const char* operation, SlotTables& tables, std::span<const View> views, Launch launch) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::vector<SlotEntry> entries;
    for (const View& view : views) {
      if (view.dtype != dtype || view.numel() == 0) continue;
      entries.push_back({view.data, nullptr, nullptr, nullptr, nullptr, view.numel()});
    }
    if (entries.empty()) continue;
    const SlotTable table = tables.find(entries);
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(table.chunk_count, INT32_MAX));
    dispatch_floating(operation, dtype, [&](auto tag) { launch(tag, table, blocks); });
  }
}

__global__ void update_kernel(LossScaleRule rule, float* scale, std::int64_t* tracker, const float* found,
                              std::int64_t* skipped) {
  if (*found != 0.0F) {
    *scale = max(*scale * static_cast<float>(rule.backoff), static_cast<float>(rule.least));
    *tracker = 0;
    ++*skipped;
    return;
  }
  if (++*tracker < rule.interval) return;
  const float grown = *scale * static_cast<float>(rule.growth);
  if (grown * 0 == 0) *scale = grown;
  *tracker = 0;
}

}  // namespace

void CudaKernels::find_not_finite(std::span<const View> values, const View& found) {
  for_each_dtype("find_not_finite", *slot_tables_, values,
                 [&](auto tag, const SlotTable& table, unsigned blocks) {
                   using T = decltype(tag);
                   DTRAIN_LAUNCH("find_not_finite", context_.stream, blocks, kThreads, find_kernel<T>, table,
                                 found.as<float>());
                 });
}

void CudaKernels::unscale(std::span<const View> gradients, const View& scale, const View& found) {
  fill(found, 0.0);
  for_each_dtype("unscale", *slot_tables_, gradients, [&](auto tag, const SlotTable& table, unsigned blocks) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("unscale", context_.stream, blocks, kThreads, unscale_kernel<T>, table,
                  scale.as<const float>(), found.as<float>());
  });
}

void CudaKernels::update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) {
  DTRAIN_LAUNCH("update_loss_scale", context_.stream, 1, 1, update_kernel, rule, state.scale.as<float>(),
                state.tracker.as<std::int64_t>(), state.found.as<const float>(),
                state.skipped.as<std::int64_t>());
}

}  // namespace dtrain::cuda
