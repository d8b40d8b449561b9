#include "runtime/device/cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dtrain::cpu {

#if defined(__x86_64__)

bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }

bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

bool has_avx512_bf16() noexcept { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }

// Leaf 7: bit 22 of EDX (Intel's manual, volume 2, CPUID). Not every compiler here knows it by name.
bool has_amx_bf16() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 22U) & 1U) != 0;
}

#else

bool has_avx2() noexcept { return false; }
bool has_avx512() noexcept { return false; }
bool has_avx512_bf16() noexcept { return false; }
bool has_amx_bf16() noexcept { return false; }

#endif

}  // namespace dtrain::cpu
