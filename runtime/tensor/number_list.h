// Numbers in nested braces: what a tensor is made of when it is written down.
#pragma once

#include <concepts>
#include <initializer_list>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/device/dims.h"
#include "runtime/tensor/number.h"

namespace dtrain {

/// A number, or a list of lists of one shape: {{1, 2}, {3, 4}} is [2, 2]. Throws UsageError for lists of
/// different shapes.
class NumberList {
 public:
  template <class T>
  requires std::integral<T> || std::floating_point<T> NumberList(T value)  // NOLINT: written as a number
      : numbers_{Number(value)},
        kind_(std::same_as<T, bool>    ? DType::boolean
              : std::floating_point<T> ? DType::f32
                                       : DType::i64) {}
  NumberList(std::initializer_list<NumberList> parts);

  const Dims& shape() const noexcept { return shape_; }
  /// In row-major order.
  const std::vector<Number>& numbers() const noexcept { return numbers_; }
  /// PyTorch's for such numbers: bool if all are truth values, else int64 if all are whole, else float32; of
  /// no number at all float32.
  DType dtype() const noexcept { return kind_; }

 private:
  std::vector<Number> numbers_;
  Dims shape_;
  DType kind_ = DType::f32;
};

}  // namespace dtrain
