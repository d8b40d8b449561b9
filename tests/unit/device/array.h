// Random arrays in any layout and dtype for kernel tests, and their comparison in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/device/device.h"

namespace dtrain::test {

enum class Layout { contiguous, channels_last };

/// An array that owns its memory. Values are multiples of 1/64 in [-1, 1), exact in every floating dtype, so
/// that differences come from the kernel under test alone.
class Array {
 public:
  Array(const Dims& shape, DType dtype = DType::f32, Layout layout = Layout::contiguous)
      : bytes_(static_cast<std::size_t>(shape.product()) * size_of(dtype) + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    view_.data = bytes_.data() + (64 - address % 64) % 64;
    view_.dtype = dtype;
    view_.shape = shape;
    view_.strides = layout == Layout::contiguous ? contiguous_strides(shape) : channels_last_strides(shape);
  }

  /// A copy has its own memory, whatever becomes of the original.
  Array(const Array& other) : Array(other.view_.shape, other.view_.dtype) {
    view_.strides = other.view_.strides;
    std::memcpy(view_.data, other.view_.data, bytes_.size() - 64);
  }
  Array(Array&&) = default;
  Array& operator=(const Array& other) { return *this = Array(other); }
  Array& operator=(Array&&) = default;

  static Array random(const Dims& shape, Generator& generator, DType dtype = DType::f32,
                      Layout layout = Layout::contiguous) {
    Array array(shape, dtype, layout);
    std::vector<double> values(static_cast<std::size_t>(shape.product()));
    for (double& value : values) value = static_cast<double>(generator.next32() % 128) / 64 - 1;
    array.set(values);
    return array;
  }

  /// Numbers of many sizes, so that every addition rounds: sums in another order have other bits.
  static Array uneven(const Dims& shape, Generator& generator, DType dtype = DType::f32,
                      Layout layout = Layout::contiguous) {
    Array array(shape, dtype, layout);
    std::vector<double> values(static_cast<std::size_t>(shape.product()));
    for (double& value : values) {
      value = std::ldexp(static_cast<double>(generator.next32()) - 2147483648.0, -31) *
              std::ldexp(1.0, static_cast<int>(generator.next32() % 8));
    }
    array.set(values);
    return array;
  }

  /// The same values in another dtype and layout.
  Array as(DType dtype, Layout layout = Layout::contiguous) const {
    Array result(view_.shape, dtype, layout);
    make_device("cpu")->kernels().copy(view_, result.view_);
    return result;
  }

  /// Sets all elements, in row-major order of the logical shape.
  void set(const std::vector<double>& values) {
    View from{const_cast<double*>(values.data()), DType::f64, view_.shape, contiguous_strides(view_.shape)};
    make_device("cpu")->kernels().copy(from, view_);
  }

  std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(view_.numel()));
    View to{result.data(), DType::f64, view_.shape, contiguous_strides(view_.shape)};
    make_device("cpu")->kernels().copy(view_, to);
    return result;
  }

  const View& view() const { return view_; }
  operator const View&() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

/// Every element within `tolerance` of its expectation; NaN never is.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - expected[i]) <= tolerance) continue;
    FAIL() << what << ": element " << i << " expected " << expected[i] << " within " << tolerance << ", got "
           << got[i];
  }
}

/// Bound on the error of a sum of `terms` products of values in [-1, 1) accumulated in f32, and rounding the
/// result to `dtype`: worst case terms · eps · terms would be far too wide; errors of random signs grow with
/// the root, 8 gives room.
inline double sum_tolerance(std::int64_t terms, DType dtype) {
  const double eps = dtype == DType::f64 ? 1e-15 : 6e-8;
  const double stored = dtype == DType::bf16 ? 1.0 / 256 : eps;
  const double size = std::sqrt(static_cast<double>(terms)) + 1;
  return 8 * eps * size * std::sqrt(size) + 4 * stored * size;
}

}  // namespace dtrain::test
