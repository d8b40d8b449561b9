// What this processor can do beyond the least that the program was compiled for. False for all on other
// processors than x86. target.h has the compiler's words for the same sets.
#pragma once

namespace dtrain::cpu {

/// AVX2 and FMA.
bool has_avx2() noexcept;
/// And AVX-512 F, BW, DQ, VL.
bool has_avx512() noexcept;
/// And its dot product of bfloat16 pairs.
bool has_avx512_bf16() noexcept;
/// A matrix unit for bfloat16.
bool has_amx_bf16() noexcept;

}  // namespace dtrain::cpu
