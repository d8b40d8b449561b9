// The loops of winograd_loops.h for f32 in AVX2.
#include "runtime/device/cpu/convolution/winograd_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

namespace dtrain::cpu::avx2 {
namespace {

using V = __m256;

struct Element {
  using Stored = float;
  static constexpr int kPack = 1;
  static constexpr int kProductRows = 6, kGradientRows = 4;

  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(V value, float* to) { _mm256_storeu_ps(to, value); }
  static V load_word(const float* from) { return load(from); }
  static void store_word(V value, float* to) { store(value, to); }
  static V word(V value, V /*the same*/) { return value; }
  static V all(float value) { return _mm256_set1_ps(value); }
  static V multiply_add(V a, V b, V sum) { return _mm256_fmadd_ps(a, b, sum); }
};

#include "runtime/device/cpu/convolution/winograd_filters.h"
#include "runtime/device/cpu/convolution/winograd_lines.h"
#include "runtime/device/cpu/convolution/winograd_loops_impl.h"

const WinogradLoops kSmall = loops_of<SmallTile>(), kLarge = loops_of<LargeTile>();

}  // namespace

const WinogradTable kWinogradF32{&kSmall, &kLarge};

}  // namespace dtrain::cpu::avx2

DTRAIN_TARGET_END

#else

namespace dtrain::cpu::avx2 {

const WinogradTable kWinogradF32;

}  // namespace dtrain::cpu::avx2

#endif
