// What is not finite, and dynamic loss scaling: unscaling with the check for overflow, and the rule that
// moves the scale.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/spread_loop.h"
#include "runtime/device/cpu/loops/widest.h"

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

/// The unsigned integer of T's size.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

/// Whether an exponent is all ones, as infinity's, which is nothing else: infinity or NaN. Of bits and
/// without a branch, so that it is vectorized: memory is all that it waits for.
template <class T>
bool has_not_finite(std::int64_t n, const T* values, std::int64_t step) {
  using Bits = BitsOf<T>;
  const auto all_ones = std::bit_cast<Bits>(cast<T>(std::numeric_limits<float>::infinity()));
  Bits bad = 0;
  const auto look = [&](const T& value) {
    const auto bits = static_cast<Bits>(std::bit_cast<Bits>(value) & all_ones);
    bad = static_cast<Bits>(bad | static_cast<Bits>(bits == all_ones));
  };
  if (step == 1) {
    for (std::int64_t i = 0; i < n; ++i) look(values[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) look(values[i * step]);
  }
  return bad != 0;
}

/// What an element takes.
constexpr double kElementNs = 0.2;

constexpr DispatchFloating<BFloat16, Float16> kDispatchStored;

}  // namespace

void CpuKernels::find_not_finite(std::span<const View> values, const View& found) {
  std::atomic<bool> bad = false;
  for (const View& view : values) {
    kDispatchStored("find_not_finite", view.dtype, [&](auto tag) {
      using T = decltype(tag);
      spread_walk<const T>(kElementNs, view, [&](std::int64_t n, const T* at, std::int64_t step) {
        if (widest([&] { return has_not_finite<T>(n, at, step); })) bad = true;
      });
    });
  }
  if (bad) *found.as<float>() = 1.0F;
}

void CpuKernels::unscale(std::span<const View> gradients, const View& scale, const View& found) {
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(*scale.as<const float>()));
  std::atomic<bool> clean = true;
  for (const View& gradient : gradients) {
    dispatch_floating("unscale", gradient.dtype, [&](auto tag) {
      using T = decltype(tag);
      spread_walk<T>(kElementNs, gradient, [&](std::int64_t n, T* values, std::int64_t step) {
        if (!widest([&] { return unscale_run<T>(n, values, step, inverse); })) clean = false;
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
