#include "runtime/device/dims.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Of extents or strides, none negative; what is too large for a number is the largest one. Such a shape has
/// no elements, or nobody gets memory for it.
std::int64_t times(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

}  // namespace

Dims::Dims(std::span<const std::int64_t> values) {
  for (const std::int64_t value : values) push_back(value);
}

Dims Dims::filled(int rank, std::int64_t value) {
  Dims dims;
  for (int i = 0; i < rank; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(std::int64_t value) {
  if (rank_ == kMaxRank) {
    throw UsageError("tensor shape: expected at most " + std::to_string(kMaxRank) + " dimensions, got more");
  }
  values_[static_cast<std::size_t>(rank_++)] = value;
}

std::int64_t Dims::product() const noexcept {
  std::int64_t result = 1;
  for (const std::int64_t value : *this) {
    if (value == 0) return 0;
    result = times(result, value);
  }
  return result;
}

std::string Dims::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i == 0 ? "" : ", ") + std::to_string((*this)[i]);
  return text + "]";
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides = Dims::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i)
    strides[i] = times(strides[i + 1], std::max<std::int64_t>(shape[i + 1], 1));
  return strides;
}

Dims channels_last_strides(const Dims& shape) {
  const std::int64_t c = shape[1], h = shape[2], w = shape[3];
  return {times(times(h, w), c), 1, times(w, c), c};
}

}  // namespace dtrain
