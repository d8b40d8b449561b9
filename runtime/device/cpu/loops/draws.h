// The numbers of philox.h for many counters at once, in loops that go into vectors: low halves of products
// are products of their own, since the compiler has no vectors for products that are used twice.
#pragma once

#include <cstdint>

#include "runtime/device/cpu/loops/widest.h"

namespace dtrain::cpu {

struct PhiloxWords {
  std::uint32_t a, b, c, d;
};

inline std::uint32_t high_half(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}

/// Unrolled: a loop in a loop stays out of vectors.
template <int kRounds>
inline PhiloxWords philox_rounds(PhiloxWords w, std::uint32_t first, std::uint32_t second) {
  if constexpr (kRounds == 0) {
    return w;
  } else {
    constexpr std::uint32_t kFirst = 0xD2511F53, kSecond = 0xCD9E8D57;
    const PhiloxWords next{high_half(kSecond, w.c) ^ w.b ^ first, kSecond * w.c,
                           high_half(kFirst, w.a) ^ w.d ^ second, kFirst * w.a};
    return philox_rounds<kRounds - 1>(next, first + 0x9E3779B9, second + 0xBB67AE85);
  }
}

/// Words of the counters (low + i · step, high), i < kCount: words[w][i] is word w of Philox(key, low + i ·
/// step, high). For loops of widest() and the like.
template <int kCount>
struct Draws {
  std::uint32_t words[4][kCount];

  Draws(std::uint64_t key, std::uint64_t low, std::uint64_t step, std::uint64_t high) {
    DTRAIN_INDEPENDENT
    for (int i = 0; i < kCount; ++i) {
      const std::uint64_t counter = low + static_cast<std::uint64_t>(i) * step;
      const PhiloxWords w =
          philox_rounds<10>({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                             static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)},
                            static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
      words[0][i] = w.a;
      words[1][i] = w.b;
      words[2][i] = w.c;
      words[3][i] = w.d;
    }
  }
};

/// What a word's number in [0, 1), unit_interval(), is below where is_below_limit() says so.
inline std::int32_t limit_of(double share) {
  return static_cast<std::int32_t>(
      __builtin_ceil(static_cast<double>(static_cast<float>(share)) * (1 << 24)));
}
inline bool is_below_limit(std::uint32_t word, std::int32_t limit) {
  return static_cast<std::int32_t>(word >> 8) < limit;
}

}  // namespace dtrain::cpu
