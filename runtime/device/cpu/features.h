// What this processor can do, and may, beyond the least that the program was compiled for. False for all on
// other processors than x86. target.h has the compiler's words for the same sets.
#pragma once

namespace dtrain::cpu {

// The environment variable DTRAIN_CPU_VECTORS (baseline, avx2 or avx512) leaves out wider vectors, so that
// tests and comparisons of bits can run what narrower processors would. oneDNN has a variable of its own,
// ONEDNN_MAX_CPU_ISA.

/// Throws UsageError where DTRAIN_CPU_VECTORS has another value.
void check_vector_limit();

/// AVX2, FMA and F16C, the conversions to and from float16.
bool has_avx2() noexcept;
/// And AVX-512 F, BW, DQ, VL.
bool has_avx512() noexcept;
/// And its dot product of bfloat16 pairs.
bool has_avx512_bf16() noexcept;
/// And pairs pay. On Intel's processors attention and convolutions took longer by them than by floats, or by
/// oneDNN (docs/decisions/062-threads-of-a-worker.md).
bool has_fast_bf16_pairs() noexcept;
/// A matrix unit for bfloat16.
bool has_amx_bf16() noexcept;

}  // namespace dtrain::cpu
