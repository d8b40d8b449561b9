// What is not finite, and dynamic loss scaling: unscaling with the check for overflow, and the rule that
// moves the scale.
#include <algorithm>
#include <bit>
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

template <class T>
struct Exponent;
template <>
struct Exponent<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kAllOnes = 0x7f800000U;
};
template <>
struct Exponent<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kAllOnes = 0x7ff0000000000000U;
};
template <>
struct Exponent<BFloat16> {
  using Bits = std::uint16_t;
  static constexpr Bits kAllOnes = 0x7f80U;
};
template <>
struct Exponent<Float16> {
  using Bits = std::uint16_t;
  static constexpr Bits kAllOnes = 0x7c00U;
};

/// Whether an exponent is all ones: infinity or NaN. Of bits and without a branch, so that it is vectorized:
/// memory is all that it waits for.
template <class T>
bool has_not_finite(std::int64_t n, const T* values, std::int64_t step) {
  using Bits = typename Exponent<T>::Bits;
  constexpr Bits kAllOnes = Exponent<T>::kAllOnes;
  Bits bad = 0;
  const auto look = [&](const T& value) {
    const auto bits = static_cast<Bits>(std::bit_cast<Bits>(value) & kAllOnes);
    bad = static_cast<Bits>(bad | static_cast<Bits>(bits == kAllOnes));
  };
  if (step == 1) {
    for (std::int64_t i = 0; i < n; ++i) look(values[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) look(values[i * step]);
  }
  return bad != 0;
}

constexpr DispatchFloating<BFloat16, Float16> kDispatchStored;

}  // namespace

void CpuKernels::find_not_finite(std::span<const View> values, const View& found) {
  require_shape("find_not_finite", "found", found, {1});
  require_dtype("find_not_finite", "found", found, DType::f32);
  bool bad = false;
  for (const View& view : values) {
    kDispatchStored("find_not_finite", view.dtype, [&](auto tag) {
      using T = decltype(tag);
      walk<const T>(view, [&](std::int64_t n, const T* at, std::int64_t step) {
        bad = has_not_finite<T>(n, at, step) || bad;
      });
    });
  }
  if (bad) *found.as<float>() = 1.0F;
}

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
    scale = std::max(scale * static_cast<float>(rule.backoff), static_cast<float>(rule.least));
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
