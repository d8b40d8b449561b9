// Dynamic loss scaling: unscaling with the check for overflow, and the rule that moves the scale.
#include <cmath>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/strided_loop.h"

namespace dtrain::cpu {
namespace {

/// Multiplies in place; true when every product is finite.
template <class T>
bool unscale_run(std::int64_t n, T* values, std::int64_t step, float inverse) {
  using A = Compute<T>;
  A clean = 0;  // 0 · x is not 0 for what is not finite
  for (std::int64_t i = 0; i < n; ++i) {
    const A value = load(values[i * step]) * static_cast<A>(inverse);
    clean += value * 0;
    values[i * step] = cast<T>(value);
  }
  return clean == 0;
}

}  // namespace

void CpuKernels::unscale(std::span<const View> gradients, const View& scale, const View& found) {
  require_shape("unscale", "scale", scale, {1});
  require_dtype("unscale", "scale", scale, DType::f32);
  require_like("unscale", "found", found, scale);
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(*scale.as<const float>()));
  bool clean = true;
  for (const View& gradient : gradients) {
    dispatch_floating("unscale", gradient.dtype, [&](auto tag) {
      using T = decltype(tag);
      walk<T>(gradient, [&](std::int64_t n, T* values, std::int64_t step) {
        clean = unscale_run<T>(n, values, step, inverse) && clean;
      });
    });
  }
  *found.as<float>() = clean ? 0.0F : 1.0F;
}

void CpuKernels::update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) {
  float& scale = *state.scale.as<float>();
  std::int64_t& tracker = *state.tracker.as<std::int64_t>();
  if (*state.found.as<const float>() != 0.0F) {
    scale *= static_cast<float>(rule.backoff);
    tracker = 0;
    ++*state.skipped.as<std::int64_t>();
    return;
  }
  if (++tracker < rule.interval) return;
  const float grown = scale * static_cast<float>(rule.growth);
  if (std::isfinite(grown)) scale = grown;
  tracker = 0;
}

}  // namespace dtrain::cpu
