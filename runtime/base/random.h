// PyTorch's CPU random numbers, bit for bit: MT19937 and the draws built on it. Everything that shuffles or
// initialises uses this one generator, so that the same seed means the same run as in PyTorch.
#pragma once

#include <cstdint>
#include <optional>
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

  std::uint32_t next32();
  /// Two draws, the first in the upper half.
  std::uint64_t next64();

  /// As tensor.uniform_(low, high) in float32: one draw an element, in serial order; 24 random bits each,
  /// scaled and shifted in one fused rounding (as PyTorch computes it wherever the CPU has AVX2).
  void uniform(std::span<float> out, float low, float high);
  /// The same in float64: one 64-bit draw an element, 53 bits each.
  void uniform(std::span<double> out, double low, double high);

  /// As tensor.normal_(mean, deviation) of a contiguous tensor. At least 16 elements: by Box and Muller over
  /// blocks of 16, the last of which overlaps the one before and is drawn again; the same within 1e-6 for
  /// deviation 1, since PyTorch's logarithm and sine depend on the processor. Fewer: in pairs in float64,
  /// whose second half waits for the next such call.
  void normal(std::span<float> out, double mean, double deviation);
  void normal(std::span<double> out, double mean, double deviation);

  /// As torch.randperm(n): a permutation of 0..n-1. O(n). Throws UsageError when n is negative or at least
  /// 2^32 / 20, where PyTorch switches to another algorithm.
  std::vector<std::int64_t> permutation(std::int64_t n);

  /// The whole state as text, for checkpoints; restore() continues the stream exactly. Throws UsageError on
  /// malformed text.
  std::string state() const;
  static Generator restore(const std::string& state);

 private:
  std::uint32_t draw32() { return static_cast<std::uint32_t>(engine_()); }
  std::uint64_t draw64();
  double next_normal();

  std::mt19937 engine_;
  std::optional<double> waiting_;  ///< second of a pair of normal numbers
};

}  // namespace dtrain
