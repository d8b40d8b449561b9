// Intrinsics, since no compiler makes these instructions of the formulas in dtype.h, which take the rest of a
// row, and all of it on processors without. Both round to nearest even, keep subnormal numbers whatever the
// thread's flags, and shorten a NaN's digits to the upper ten.
#include "runtime/device/cpu/loops/float16.h"

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/target.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#endif

namespace dtrain::cpu {
namespace {

void convert_each(std::int64_t count, const float* from, Float16* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Float16(from[i]);
}

void convert_each(std::int64_t count, const Float16* from, float* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

#if defined(__x86_64__)

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// Each converts whole vectors and returns how many elements that were. From float16 the instruction makes a
// signalling NaN quiet, which the formula does not, so that vectors with a NaN go by the formula.

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512)
std::int64_t convert_avx512(std::int64_t count, const float* from, Float16* to) noexcept {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(from + i), kNearest);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
  }
  return i;
}

std::int64_t convert_avx512(std::int64_t count, const Float16* from, float* to) noexcept {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512 floats = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    _mm512_storeu_ps(to + i, floats);
    if (_mm512_cmp_ps_mask(floats, floats, _CMP_UNORD_Q) != 0) convert_each(16, from + i, to + i);
  }
  return i;
}
DTRAIN_TARGET_END

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2_F16C)
std::int64_t convert_avx2(std::int64_t count, const float* from, Float16* to) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), kNearest);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}

std::int64_t convert_avx2(std::int64_t count, const Float16* from, float* to) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 floats = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(to + i, floats);
    if (_mm256_movemask_ps(_mm256_cmp_ps(floats, floats, _CMP_UNORD_Q)) != 0) {
      convert_each(8, from + i, to + i);
    }
  }
  return i;
}
DTRAIN_TARGET_END

template <class From, class To>
std::int64_t convert_vectors(std::int64_t count, const From* from, To* to) noexcept {
  if (has_avx512()) return convert_avx512(count, from, to);
  if (has_avx2()) return convert_avx2(count, from, to);
  return 0;
}

#else

template <class From, class To>
std::int64_t convert_vectors(std::int64_t, const From*, To*) noexcept {
  return 0;
}

#endif

}  // namespace

void convert(std::int64_t count, const float* from, Float16* to) noexcept {
  const std::int64_t done = convert_vectors(count, from, to);
  convert_each(count - done, from + done, to + done);
}

void convert(std::int64_t count, const Float16* from, float* to) noexcept {
  const std::int64_t done = convert_vectors(count, from, to);
  convert_each(count - done, from + done, to + done);
}

}  // namespace dtrain::cpu
