// A number beside a tensor, which remembers whether it was written as a whole one.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

namespace dtrain {

/// What decides a result's dtype beside integers: `tensor + 1` stays int64, `tensor + 1.0` is float32, as in
/// PyTorch. Converted to from every integer and floating type; an integer that int64 does not hold is a
/// fraction.
class Number {
 public:
  template <std::integral T>
  constexpr Number(T value) noexcept  // NOLINT: written as a number
      : whole_(static_cast<std::int64_t>(value)),
        real_(static_cast<double>(value)),
        is_whole_(std::signed_integral<T> || static_cast<std::uint64_t>(value) <= kLargest) {}
  template <std::floating_point T>
  constexpr Number(T value) noexcept  // NOLINT: written as a number
      : real_(static_cast<double>(value)) {}

  constexpr bool is_whole() const noexcept { return is_whole_; }
  /// Of a number that is_whole().
  constexpr std::int64_t whole() const noexcept { return whole_; }
  constexpr double real() const noexcept { return real_; }
  /// Whether real() may be another number: beyond 2^53 not every whole one is a double.
  constexpr bool needs_int64() const noexcept {
    constexpr std::int64_t kExact = std::int64_t{1} << 53U;
    return is_whole_ && (whole_ > kExact || whole_ < -kExact);
  }

 private:
  static constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  std::int64_t whole_ = 0;
  double real_;
  bool is_whole_ = false;
};

}  // namespace dtrain
