// A short list of extents or strides held in place: tensors are copied and reshaped on the hot path.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace dtrain {

/// Most dimensions a tensor can have.
inline constexpr int kMaxRank = 8;

/// Up to kMaxRank 64-bit integers; a value type.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  /// Throws UsageError for more than kMaxRank values.
  explicit Dims(std::span<const std::int64_t> values);
  /// `rank` copies of `value`.
  static Dims filled(int rank, std::int64_t value);

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int i) const noexcept { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) noexcept { return values_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  std::int64_t back() const noexcept { return values_[static_cast<std::size_t>(rank_ - 1)]; }
  /// Throws UsageError when full.
  void push_back(std::int64_t value);

  /// Product of all values; 1 when empty.
  std::int64_t product() const noexcept;
  bool operator==(const Dims& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  /// "[2, 3]"
  std::string to_string() const;

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// Strides, in elements, of a densely packed row-major tensor of `shape`.
Dims contiguous_strides(const Dims& shape);

/// Strides, in elements, of a densely packed tensor of logical shape [N, C, H, W] stored as N, H, W, C.
Dims channels_last_strides(const Dims& shape);

}  // namespace dtrain
