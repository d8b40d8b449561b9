// A hash by which data are recognised when they are seen again: of samples, of files. The one thing to know:
// it is kept in checkpoints, so that it must not change.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace dtrain {

/// As FNV-1a, but eight bytes at a time: not against forgery, against mistakes.
class ContentHash {
 public:
  /// Zeros make `bytes` a multiple of eight long.
  void add(std::span<const std::byte> bytes) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      const std::size_t left = bytes.size() - at;
      std::memcpy(&word, bytes.data() + at, left < sizeof word ? left : sizeof word);
      value_ = (value_ ^ word) * kPrime;
      value_ ^= value_ >> 32U;  // high bits count too
    }
  }
  /// 16 hexadecimal digits.
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// Which `count` of `size` things to look at: the first, the last and others evenly between them. `count` is
/// at least 2, or `size`.
constexpr std::int64_t evenly_spread(std::int64_t i, std::int64_t count, std::int64_t size) noexcept {
  return count == size ? i : static_cast<std::int64_t>(static_cast<__int128>(i) * (size - 1) / (count - 1));
}

}  // namespace dtrain
