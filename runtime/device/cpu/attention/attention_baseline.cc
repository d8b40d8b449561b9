// What every processor of the target can do; also chooses between the tables.
#include "runtime/device/cpu/attention/attention_loops.h"
#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/loops/draws.h"
#include "runtime/device/elementary.h"

namespace dtrain::cpu::baseline {
namespace {
constexpr int kVectorBytes = 16, kTileRows = 4, kTileVectors = 2;
}

#include "runtime/device/cpu/attention/attention_loops_impl.h"

const AttentionTable kAttention{kLoopsOf<Plain<float>, float>, kLoopsOf<Plain<double>, double>,
                                kLoopsOf<Plain<float>, std::uint16_t>};

}  // namespace dtrain::cpu::baseline

namespace dtrain::cpu {
namespace {

const AttentionTable& attention_table() {
#if defined(__x86_64__)
  if (has_avx512()) return avx512::kAttention;
  if (has_avx2()) return avx2::kAttention;
#endif
  return baseline::kAttention;
}

}  // namespace

const AttentionLoops& attention_loops(DType dtype) {
  const AttentionTable& table = attention_table();
  if (dtype == DType::f64) return table.f64;
  if (dtype != DType::bf16) return table.f32;
#if defined(__x86_64__)
  if (has_fast_bf16_pairs()) return avx512::kAttentionBf16;
#endif
  return table.bf16;
}

}  // namespace dtrain::cpu
