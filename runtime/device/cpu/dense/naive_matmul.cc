// Batched matrix product in plain loops, one row of the output at a time in double.
#include <algorithm>
#include <vector>

#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

template <class T>
void product_row(const T* a, std::int64_t a_step, const View& b, std::int64_t batch, std::int64_t inner,
                 std::vector<double>& row) {
  const std::int64_t columns = static_cast<std::int64_t>(row.size());
  for (std::int64_t k = 0; k < inner; ++k) {
    const double factor = load(a[k * a_step]);
    const T* from = b.as<const T>() + batch * b.strides[0] + k * b.strides[1];
    for (std::int64_t n = 0; n < columns; ++n) {
      row[static_cast<std::size_t>(n)] += factor * static_cast<double>(load(from[n * b.strides[2]]));
    }
  }
}

template <class T>
void matmul_of(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
               const View& out) {
  std::vector<double> row(static_cast<std::size_t>(out.shape[2]));
  for (std::int64_t batch = 0; batch < out.shape[0]; ++batch) {
    for (std::int64_t m = 0; m < out.shape[1]; ++m) {
      std::fill(row.begin(), row.end(), 0.0);
      product_row(a.as<const T>() + batch * a.strides[0] + m * a.strides[1], a.strides[2], b, batch,
                  a.shape[2], row);
      T* to = out.as<T>() + batch * out.strides[0] + m * out.strides[1];
      for (std::int64_t n = 0; n < out.shape[2]; ++n) {
        double value = row[static_cast<std::size_t>(n)];
        if (bias.data != nullptr) value += load(bias.as<const T>()[n * bias.strides[0]]);
        if (activation == Activation::relu) value = value < 0 ? 0 : value;
        T& element = to[n * out.strides[2]];
        element = cast<T>(accumulate ? value + load(element) : value);
      }
    }
  }
}

}  // namespace

void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
            const View& out) {
  if (out.dtype == DType::i64) return integer_matmul(a, b, accumulate, out);
  dispatch_floating("matmul", out.dtype,
                    [&](auto tag) { matmul_of<decltype(tag)>(a, b, bias, activation, accumulate, out); });
}

}  // namespace dtrain::cpu::naive
