// The loops of lane_conv.h in AVX2.
#include "runtime/device/cpu/convolution/lane_conv.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

namespace dtrain::cpu::avx2 {
namespace {

using V = __m256;
using Words = std::int32_t __attribute__((vector_size(32)));

/// Each half of the result holds the sums of that half of a, b, c and d.
inline V halves(V a, V b, V c, V d) {
  const V ab = _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
  const V cd = _mm256_unpacklo_ps(c, d) + _mm256_unpackhi_ps(c, d);
  const __m256d lower = _mm256_castps_pd(ab), upper = _mm256_castps_pd(cd);
  return _mm256_castpd_ps(_mm256_unpacklo_pd(lower, upper)) +
         _mm256_castpd_ps(_mm256_unpackhi_pd(lower, upper));
}

struct Element {
  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(V value, float* to) { _mm256_storeu_ps(to, value); }
  static V all(float value) { return _mm256_set1_ps(value); }
  static Words all_words(int value) { return Words(_mm256_set1_epi32(value)); }
  static V multiply_add(V a, V b, V sum) { return _mm256_fmadd_ps(a, b, sum); }

  /// In a register: as part of each product that it goes into it would be loaded each time.
  static V load_once(const V& from) {
    V value = from;
    __asm__("" : "+x"(value));
    return value;
  }

  static void transpose(V (&r)[8]) {
    V t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    V s[8];
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        s[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
        s[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
      }
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
    }
  }

  static void store_bytes(Words words, std::uint8_t* to) {
    const __m256i value = __m256i(words);
    const __m128i shorts = _mm_packs_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(shorts, shorts));
  }
  static Words load_bytes(const std::uint8_t* from) {
    return Words(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }

  /// Adds to `to` the sums over 16 lanes of four values; lanes 8 to 15 lie `pitch` on.
  static void add_lanes(const V* value, int pitch, float* to) {
    const V* rest = value + pitch;
    const V sums =
        halves(value[0], value[1], value[2], value[3]) + halves(rest[0], rest[1], rest[2], rest[3]);
    _mm_storeu_ps(to, _mm_loadu_ps(to) + (_mm256_castps256_ps128(sums) + _mm256_extractf128_ps(sums, 1)));
  }
};

#include "runtime/device/cpu/convolution/lane_conv_impl.h"

}  // namespace

const LaneLoops kLaneLoops{to_lanes, from_lanes, forward, unpool, backward_input, backward_weight};

}  // namespace dtrain::cpu::avx2

DTRAIN_TARGET_END

#else

namespace dtrain::cpu::avx2 {

const LaneLoops kLaneLoops{};

}  // namespace dtrain::cpu::avx2

#endif
