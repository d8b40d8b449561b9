// Four vectors side by side, so that no comparison waits for the one before. A comparison for order tells NaN
// in either of two vectors.
#include "runtime/device/cpu/loops/extremes.h"

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/target.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#endif

namespace dtrain::cpu {

#if defined(__x86_64__)
namespace {

constexpr std::int64_t kVector = 8;
constexpr std::int64_t kStep = 4 * kVector;

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

template <bool kLargest>
__m256 better(__m256 a, __m256 b) {
  if constexpr (kLargest) return _mm256_max_ps(a, b);
  return _mm256_min_ps(a, b);
}

/// The best of the lanes.
template <bool kLargest>
float best_lane(__m256 lanes) {
  lanes = better<kLargest>(lanes, _mm256_permute2f128_ps(lanes, lanes, 1));
  lanes = better<kLargest>(lanes, _mm256_permute_ps(lanes, 0b01'00'11'10));
  lanes = better<kLargest>(lanes, _mm256_permute_ps(lanes, 0b10'11'00'01));
  return _mm256_cvtss_f32(lanes);
}

/// The last step begins where it ends with the row: what is compared twice is as large as before.
template <bool kLargest>
bool extreme_avx2(std::int64_t count, const float* from, float& best) noexcept {
  __m256 lanes[4], nan = _mm256_setzero_ps();
  for (int v = 0; v < 4; ++v) lanes[v] = _mm256_loadu_ps(from);
  for (std::int64_t i = 0; i < count; i += kStep) {
    const float* const at = from + (i + kStep <= count ? i : count - kStep);
    const __m256 a = _mm256_loadu_ps(at), b = _mm256_loadu_ps(at + kVector),
                 c = _mm256_loadu_ps(at + 2 * kVector), d = _mm256_loadu_ps(at + 3 * kVector);
    nan =
        _mm256_or_ps(nan, _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q)));
    lanes[0] = better<kLargest>(lanes[0], a);
    lanes[1] = better<kLargest>(lanes[1], b);
    lanes[2] = better<kLargest>(lanes[2], c);
    lanes[3] = better<kLargest>(lanes[3], d);
  }
  const float found = best_lane<kLargest>(
      better<kLargest>(better<kLargest>(lanes[0], lanes[1]), better<kLargest>(lanes[2], lanes[3])));
  if (_mm256_movemask_ps(nan) != 0 || found == 0.0F) return false;
  best = found;
  return true;
}

DTRAIN_TARGET_END

template <bool kLargest>
bool extreme_of(std::int64_t count, const float* from, float& best) noexcept {
  return count >= kStep && has_avx2() && extreme_avx2<kLargest>(count, from, best);
}

}  // namespace

bool largest_of(std::int64_t count, const float* from, float& best) noexcept {
  return extreme_of<true>(count, from, best);
}

bool least_of(std::int64_t count, const float* from, float& best) noexcept {
  return extreme_of<false>(count, from, best);
}

#else

bool largest_of(std::int64_t, const float*, float&) noexcept { return false; }
bool least_of(std::int64_t, const float*, float&) noexcept { return false; }

#endif

}  // namespace dtrain::cpu
