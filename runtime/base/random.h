// PyTorch's CPU random numbers, bit for bit: MT19937 and the draws built on it. Everything that shuffles or
// initialises uses this one generator, so that the same seed means the same run as in PyTorch.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace dtrain {

/// A seeded stream of random numbers; a value type (copies continue independently).
class Generator {
 public:
  /// As torch.manual_seed(seed): the lower 32 bits seed MT19937.
  explicit Generator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed & 0xffffffffULL)) {}

  std::uint32_t next32() { return static_cast<std::uint32_t>(engine_()); }

  /// As tensor.uniform_(low, high) in float32: one draw an element, in serial order; 24 random bits each,
  /// scaled and shifted in one fused rounding (as PyTorch computes it wherever the CPU has AVX2).
  void uniform(std::span<float> out, float low, float high);

  /// As torch.randperm(n): a permutation of 0..n-1. O(n). Throws UsageError when n is negative or at least
  /// 2^32 / 20, where PyTorch switches to another algorithm.
  std::vector<std::int64_t> permutation(std::int64_t n);

  /// The whole state as text, for checkpoints; restore() continues the stream exactly. Throws UsageError on
  /// malformed text.
  std::string state() const;
  static Generator restore(const std::string& state);

 private:
  std::mt19937 engine_;
};

}  // namespace dtrain
