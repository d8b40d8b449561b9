// A number beside a tensor, which remembers whether it was written as a whole one.
#pragma once

#include <concepts>
#include <cstdint>

namespace dtrain {

/// What decides a result's dtype beside integers: `tensor + 1` stays int64, `tensor + 1.0` is float32, as in
/// PyTorch. Converted to from every integer and floating type.
class Number {
 public:
  template <std::integral T>
  constexpr Number(T value) noexcept  // NOLINT: written as a number
      : whole_(static_cast<std::int64_t>(value)), real_(static_cast<double>(value)), is_whole_(true) {}
  template <std::floating_point T>
  constexpr Number(T value) noexcept  // NOLINT: written as a number
      : real_(static_cast<double>(value)) {}

  constexpr bool is_whole() const noexcept { return is_whole_; }
  /// Of a number that is_whole().
  constexpr std::int64_t whole() const noexcept { return whole_; }
  constexpr double real() const noexcept { return real_; }

 private:
  std::int64_t whole_ = 0;
  double real_;
  bool is_whole_ = false;
};

}  // namespace dtrain
