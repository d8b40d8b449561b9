// Which of several things that may happen next does: as they come for seed 0, at random but repeatably for
// any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace emulation {

/// Not thread-safe. Seed 0 always takes the first.
class Order {
 public:
  explicit Order(std::uint64_t seed) : seed_(seed), state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  bool natural() const noexcept { return seed_ == 0; }
  /// A number below `count`, which is not 0.
  std::size_t pick(std::size_t count) noexcept {
    if (seed_ == 0 || count == 1) return 0;
    return static_cast<std::size_t>(next() % count);
  }
  /// The numbers below `count` in the order they are to be taken.
  void arrange(std::vector<std::uint32_t>& numbers, std::size_t count) {
    numbers.resize(count);
    std::iota(numbers.begin(), numbers.end(), 0U);
    if (seed_ == 0) return;
    for (std::size_t i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[next() % i]);
  }

 private:
  std::uint64_t next() noexcept {  // xorshift*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545F4914F6CDD1DULL) >> 16;
  }
  std::uint64_t seed_, state_;
};

}  // namespace emulation
