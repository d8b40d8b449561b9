// The loops of winograd_loops.h for bf16 in AVX-512 with its dot product of pairs.
#include "runtime/device/cpu/convolution/winograd_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512 ",avx512bf16")

namespace dtrain::cpu::avx512 {
namespace {

using V = __m512;

struct Element {
  using Stored = std::uint16_t;
  static constexpr int kPack = 2;
  static constexpr int kProductRows = 14, kGradientRows = 8;

  static __m256i rounded(__m512 value) { return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(value)); }
  static __m512 load(const Stored* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void store(__m512 value, Stored* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded(value));
  }
  static V load_word(const float* from) { return _mm512_loadu_ps(from); }
  static void store_word(V value, float* to) { _mm512_storeu_ps(to, value); }
  static V all(float word) { return _mm512_set1_ps(word); }
  static __m512 word(__m512 first, __m512 second) {
    const __m512i low = _mm512_cvtepu16_epi32(rounded(first));
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded(second)), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(low, high));
  }
  static __m512 multiply_add(__m512 a, __m512 b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
};

#include "runtime/device/cpu/convolution/winograd_filters_avx512.h"
#include "runtime/device/cpu/convolution/winograd_lines.h"
#include "runtime/device/cpu/convolution/winograd_loops_impl.h"

const WinogradLoops kSmall = loops_of<SmallTile>();

}  // namespace

const WinogradTable kWinogradBf16{&kSmall, nullptr};

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#else

namespace dtrain::cpu::avx512 {

const WinogradTable kWinogradBf16;

}  // namespace dtrain::cpu::avx512

#endif
