// Random numbers as a function of their place: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", 2011), written once for host and device. No state, so any thread draws any number.
#pragma once

#include <cstdint>

#include "runtime/device/functors.h"

namespace dtrain {

/// Four random words for a counter of 128 bits (two halves) under a key.
struct Philox {
  std::uint32_t words[4];

  DTRAIN_HOST_DEVICE Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high)
      : words{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
              static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)} {
    auto first = static_cast<std::uint32_t>(key), second = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * words[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * words[2];
      const auto b_high = static_cast<std::uint32_t>(b >> 32), a_high = static_cast<std::uint32_t>(a >> 32);
      words[0] = b_high ^ words[1] ^ first;
      words[2] = a_high ^ words[3] ^ second;
      words[1] = static_cast<std::uint32_t>(b);
      words[3] = static_cast<std::uint32_t>(a);
      first += 0x9E3779B9;
      second += 0xBB67AE85;
    }
  }
};

/// A word in which every bit of `value` has a say (the finaliser of splitmix64).
DTRAIN_HOST_DEVICE inline std::uint64_t scrambled(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// The key of a layer's numbers in a step.
DTRAIN_HOST_DEVICE inline std::uint64_t philox_key(std::uint64_t seed, std::uint64_t layer,
                                                   std::uint64_t step) {
  return scrambled(scrambled(scrambled(seed) ^ layer) ^ step);
}

/// A number in [0, 1) of 24 random bits.
DTRAIN_HOST_DEVICE inline float unit_interval(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0F / (1U << 24));
}

}  // namespace dtrain
