// Sums of floats that keep what a float drops: a pair of floats has as many digits as a double, at the speed
// of floats. Most GPUs do 32 or 64 floats in the time of one double.
#pragma once

#include <cmath>
#include <type_traits>

namespace dtrain::cuda {

/// high + low, where `low` is what additions to `high` have lost. Trivial, so that it can lie in shared
/// memory.
struct FloatPair {
  float high, low;
};

/// Knuth's exact sum: rounded operation by operation, whatever the compiler would fuse.
__device__ __forceinline__ FloatPair exact_sum(float a, float b) {
  const float sum = __fadd_rn(a, b), back = __fsub_rn(sum, a);
  return {sum, __fadd_rn(__fsub_rn(a, __fsub_rn(sum, back)), __fsub_rn(b, back))};
}
__device__ __forceinline__ FloatPair plus(FloatPair a, float b) {
  const FloatPair sum = exact_sum(a.high, b);
  return {sum.high, __fadd_rn(a.low, sum.low)};
}
__device__ __forceinline__ FloatPair plus(FloatPair a, FloatPair b) {
  const FloatPair sum = exact_sum(a.high, b.high);
  return {sum.high, __fadd_rn(__fadd_rn(a.low, b.low), sum.low)};
}
__device__ __forceinline__ double plus(double a, double b) { return a + b; }

/// The sum as one number. An infinite or undefined one has lost nothing.
__device__ __forceinline__ float rounded(FloatPair sum) {
  return isfinite(sum.high) ? __fadd_rn(sum.high, sum.low) : sum.high;
}
__device__ __forceinline__ double widened(FloatPair sum) {
  const auto high = static_cast<double>(sum.high);
  return isfinite(sum.high) ? high + static_cast<double>(sum.low) : high;
}
__device__ __forceinline__ double widened(double sum) { return sum; }

/// What sums of C's are accumulated in.
template <class C>
using SumType = std::conditional_t<std::is_same_v<C, float>, FloatPair, C>;

}  // namespace dtrain::cuda
