// The loops of attention for bf16 in AVX-512 with its dot product of pairs.
#include "runtime/device/cpu/attention/attention_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/loops/draws.h"
#include "runtime/device/cpu/target.h"
#include "runtime/device/elementary.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512 ",avx512bf16")

namespace dtrain::cpu::avx512 {
namespace {
constexpr int kVectorBytes = 64, kTileRows = 8, kTileVectors = 2;
}

#include "runtime/device/cpu/attention/attention_loops_impl.h"

namespace {

/// Pairs of bf16, the bits of each in a float.
struct Pairs {
  using Number = float;
  using Word = float;
  using Vector = VectorOf<float>::Aligned;
  static constexpr std::int64_t kPack = 2;

  static void add_product(Vector& sum, const Word& a, const Vector& b) {
    sum = _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, _mm512_set1_ps(a)),
                           __builtin_bit_cast(__m512bh, b));
  }
  /// 16 pairs of a number of each row, the first one's low.
  static void join_rows(const float* first, const float* second, Word* to) {
    const __m512i low = _mm512_cvtepu16_epi32(rounded(first)), high = _mm512_cvtepu16_epi32(rounded(second));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  /// 32 numbers as 16 pairs of neighbours.
  static void round(const float* from, Word* to) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
    _mm512_storeu_si512(to, __builtin_bit_cast(__m512i, both));
  }

 private:
  static __m256i rounded(const float* from) {
    return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
  }
};

}  // namespace

const AttentionLoops kAttentionBf16 = kLoopsOf<Pairs, std::uint16_t>;

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#endif
