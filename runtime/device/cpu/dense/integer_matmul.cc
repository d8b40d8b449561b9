// Batched matrix product of int64, a row of the output at a time; sums wrap as unsigned arithmetic does.
#include <vector>

#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

using Row = std::vector<std::uint64_t>;

void add_product_row(const std::int64_t* a, std::int64_t a_step, const View& b, std::int64_t batch,
                     std::int64_t inner, Row& row) {
  const std::int64_t step = b.strides[2];
  for (std::int64_t k = 0; k < inner; ++k) {
    const auto factor = static_cast<std::uint64_t>(a[k * a_step]);
    const std::int64_t* from = b.as<const std::int64_t>() + batch * b.strides[0] + k * b.strides[1];
    for (std::size_t n = 0; n < row.size(); ++n) {
      row[n] += factor * static_cast<std::uint64_t>(from[static_cast<std::int64_t>(n) * step]);
    }
  }
}

}  // namespace

void integer_matmul(const View& a, const View& b, bool accumulate, const View& out) {
  Row row(static_cast<std::size_t>(out.shape[2]));
  for (std::int64_t batch = 0; batch < out.shape[0]; ++batch) {
    for (std::int64_t m = 0; m < out.shape[1]; ++m) {
      row.assign(row.size(), 0);
      add_product_row(a.as<const std::int64_t>() + batch * a.strides[0] + m * a.strides[1], a.strides[2], b,
                      batch, a.shape[2], row);
      std::int64_t* to = out.as<std::int64_t>() + batch * out.strides[0] + m * out.strides[1];
      for (std::size_t n = 0; n < row.size(); ++n) {
        std::int64_t& element = to[static_cast<std::int64_t>(n) * out.strides[2]];
        const auto before = accumulate ? static_cast<std::uint64_t>(element) : 0;
        element = static_cast<std::int64_t>(row[n] + before);
      }
    }
  }
}

}  // namespace dtrain::cpu::naive
