// The loops of attention for AVX-512 (F, BW, DQ, VL).
#include "runtime/device/cpu/attention/attention_loops.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/loops/draws.h"
#include "runtime/device/cpu/target.h"
#include "runtime/device/elementary.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512)

namespace dtrain::cpu::avx512 {
namespace {
constexpr int kVectorBytes = 64, kTileRows = 8, kTileVectors = 2;
}

#include "runtime/device/cpu/attention/attention_loops_impl.h"

const AttentionTable kAttention{kLoopsOf<Plain<float>, float>, kLoopsOf<Plain<double>, double>,
                                kLoopsOf<Plain<float>, std::uint16_t>};

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#endif
