// Dynamic loss scaling: unscaling with the check for overflow, and the rule that moves the scale. The
// decision stays on the device.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/launch.cuh"

namespace dtrain::cuda {
namespace {

template <class T>
__global__ void unscale_kernel(Layout<1> layout, T* values, const float* scale, float* found) {
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(*scale));
  for (std::int64_t i = first_item(); i < layout.count; i += item_step()) {
    std::int64_t at[1];
    layout.locate(i, at);
    const Compute<T> value = load(values[at[0]]) * static_cast<Compute<T>>(inverse);
    if (!(value * 0 == 0)) *found = 1.0F;  // every thread that writes writes the same
    values[at[0]] = cast<T>(value);
  }
}

__global__ void update_kernel(LossScaleRule rule, float* scale, std::int64_t* tracker, const float* found,
                              std::int64_t* skipped) {
  if (*found != 0.0F) {
    *scale *= static_cast<float>(rule.backoff);
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

void CudaKernels::unscale(std::span<const View> gradients, const View& scale, const View& found) {
  require_shape("unscale", "scale", scale, {1});
  require_dtype("unscale", "scale", scale, DType::f32);
  require_like("unscale", "found", found, scale);
  fill(found, 0.0);
  for (const View& gradient : gradients) {
    const Layout<1> layout = make_layout<1>(gradient.shape, {gradient.strides});
    if (layout.count == 0) continue;
    dispatch_floating("unscale", gradient.dtype, [&](auto tag) {
      using T = decltype(tag);
      DTRAIN_LAUNCH("unscale", context_.stream, blocks_for(context_, layout.count), kThreads,
                    unscale_kernel<T>, layout, gradient.as<T>(), scale.as<const float>(), found.as<float>());
    });
  }
}

void CudaKernels::update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) {
  DTRAIN_LAUNCH("update_loss_scale", context_.stream, 1, 1, update_kernel, rule, state.scale.as<float>(),
                state.tracker.as<std::int64_t>(), state.found.as<const float>(),
                state.skipped.as<std::int64_t>());
}

}  // namespace dtrain::cuda
