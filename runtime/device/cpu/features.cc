#include "runtime/device/cpu/features.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dtrain::cpu {
namespace {

constexpr const char* kLimit = "DTRAIN_CPU_VECTORS";

std::string_view limit() noexcept {
  static const char* const value = std::getenv(kLimit);
  return value == nullptr ? "" : value;
}

bool allows_avx512() noexcept { return limit().empty() || limit() == "avx512"; }
bool allows_avx2() noexcept { return allows_avx512() || limit() == "avx2"; }

#if defined(__x86_64__)
// Leaf 1: bit 29 of ECX (Intel's manual, volume 2, CPUID). Not every compiler here knows it by name.
bool has_f16c() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && ((ecx >> 29U) & 1U) != 0;
}
#endif

}  // namespace

void check_vector_limit() {
  if (allows_avx2() || limit() == "baseline") return;
  throw UsageError(std::string(kLimit) + ": expected baseline, avx2 or avx512, got '" + std::string(limit()) +
                   "'");
}

#if defined(__x86_64__)

bool has_avx2() noexcept {
  static const bool has = allows_avx2() && __builtin_cpu_supports("avx2") != 0 &&
                          __builtin_cpu_supports("fma") != 0 && has_f16c();
  return has;
}

bool has_avx512() noexcept {
  static const bool has = allows_avx512() && has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

bool has_avx512_bf16() noexcept { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }
bool has_fast_bf16_pairs() noexcept { return has_avx512_bf16() && __builtin_cpu_is("intel") == 0; }

// Leaf 7: bit 22 of EDX (Intel's manual, volume 2, CPUID). Not every compiler here knows it by name.
// Asked once: in a virtual machine the question stops it, and convolutions ask at every call.
bool has_amx_bf16() noexcept {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 22U) & 1U) != 0;
  }();
  return has;
}

#else

bool has_avx2() noexcept { return false; }
bool has_avx512() noexcept { return false; }
bool has_avx512_bf16() noexcept { return false; }
bool has_fast_bf16_pairs() noexcept { return false; }
bool has_amx_bf16() noexcept { return false; }

#endif

}  // namespace dtrain::cpu
