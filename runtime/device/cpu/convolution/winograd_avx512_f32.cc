// The loops of winograd_loops.h for f32 in AVX-512.
#include "runtime/device/cpu/convolution/winograd_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512)

namespace dtrain::cpu::avx512 {
namespace {

struct Element {
  using Stored = float;
  static constexpr int kPack = 1;

  static __m512 load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(__m512 value, float* to) { _mm512_storeu_ps(to, value); }
  static __m512 word(__m512 value, __m512 /*the same*/) { return value; }
  static __m512 multiply_add(__m512 a, __m512 b, __m512 sum) { return _mm512_fmadd_ps(a, b, sum); }
};

#include "runtime/device/cpu/convolution/winograd_loops_impl.h"

}  // namespace

const WinogradLoops* const kWinogradF32 = &kLoops;

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#else

namespace dtrain::cpu::avx512 {

const WinogradLoops* const kWinogradF32 = nullptr;

}  // namespace dtrain::cpu::avx512

#endif
