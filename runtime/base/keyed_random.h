// Random numbers that are a function of their key alone: the same for any number of threads, in any order of
// calls, after any restart. Counter-based, so that an unused generator costs nothing.
#pragma once

#include <array>
#include <cstdint>

namespace dtrain {

class Generator;

/// The stream of random numbers of one sample in one epoch: Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Its key is the seed; its 128-bit counter is, from
/// the lowest word up, the number of the block of four draws, the index (two words) and the epoch modulo
/// 2^32. Streams of different keys are independent; 2^34 draws before one repeats. To construct it is to
/// store five words; MT19937 (`Generator`) would fill 624. A value type, and a UniformRandomBitGenerator for
/// the standard library's algorithms, whose results however differ between libraries: for numbers that
/// are to stay the same everywhere use the members.
///
///     KeyedGenerator generator(seed, epoch, index);
///     const bool mirrored = generator.below(2) == 1;
///     const auto left = static_cast<std::int64_t>(generator.below(9));  // 0 … 8
class KeyedGenerator {
 public:
  using result_type = std::uint32_t;

  KeyedGenerator(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) noexcept
      : key_{low(seed), high(seed)}, counter_{0, low(index), high(index), low(epoch)} {}

  /// Hands out the words of `words` instead, which is borrowed and continues from wherever it is: for samples
  /// that are to draw what PyTorch would.
  explicit KeyedGenerator(Generator& words) noexcept : key_{}, counter_{}, words_(&words) {}

  std::uint32_t next32() noexcept {
    if (used_ == block_.size()) refill();
    return block_[used_++];
  }
  /// Two draws, the first one is the lower half.
  std::uint64_t next64() noexcept {
    const std::uint64_t lower = next32();
    return std::uint64_t{next32()} << 32 | lower;
  }
  /// Uniform in [0, 1): one draw, of which the upper 24 bits count.
  float uniform() noexcept { return static_cast<float>(next32() >> 8) * (1.0F / (1U << 24)); }
  /// Uniform in [low, high) but for rounding: low + (high - low) · uniform().
  float uniform(float low, float high) noexcept { return low + (high - low) * uniform(); }
  /// Uniform in [0, n), without bias; n > 0, unchecked. One 64-bit draw, hardly ever more.
  std::uint64_t below(std::uint64_t n) noexcept;

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return UINT32_MAX; }
  result_type operator()() noexcept { return next32(); }

 private:
  static constexpr std::uint32_t low(std::uint64_t value) noexcept {
    return static_cast<std::uint32_t>(value);
  }
  static constexpr std::uint32_t high(std::uint64_t value) noexcept {
    return static_cast<std::uint32_t>(value >> 32);
  }
  void refill() noexcept;

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_;  // set by the first draw
  std::size_t used_ = 4;                // of the block
  Generator* words_ = nullptr;          // where they come from instead
};

/// One block of Philox4x32-10: a bijection of `counter` for each `key`.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept;

}  // namespace dtrain
