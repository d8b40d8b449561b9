// Matrix products of int64, which cuBLASLt has not: a thread takes an element; sums wrap, as on the CPU.
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/matmul/integer_matmul.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {
namespace {

using Whole = unsigned long long;

/// A batch of matrices by its strides.
struct Matrices {
  explicit Matrices(const View& view)
      : data(view.as<std::int64_t>()),
        batch(view.strides[0]),
        row(view.strides[1]),
        column(view.strides[2]) {}
  __device__ std::int64_t& operator()(std::int64_t b, std::int64_t r, std::int64_t c) const {
    return data[b * batch + r * row + c * column];
  }
  std::int64_t* data;
  std::int64_t batch, row, column;
};

__global__ void multiply_kernel(std::int64_t count, std::int64_t rows, std::int64_t columns,
                                std::int64_t inner, Matrices a, Matrices b, bool accumulate, Matrices out) {
  for (std::int64_t e = first_item(); e < count; e += item_step()) {
    const std::int64_t c = e % columns, r = e / columns % rows, batch = e / columns / rows;
    Whole sum = accumulate ? static_cast<Whole>(out(batch, r, c)) : 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      sum += static_cast<Whole>(a(batch, r, k)) * static_cast<Whole>(b(batch, k, c));
    }
    out(batch, r, c) = static_cast<std::int64_t>(sum);
  }
}

}  // namespace

void integer_matmul(const Context& context, const View& a, const View& b, bool accumulate, const View& out) {
  DTRAIN_LAUNCH("matmul", context.stream, blocks_for(context, out.numel()), kThreads, multiply_kernel,
                out.numel(), out.shape[1], out.shape[2], a.shape[2], Matrices(a), Matrices(b), accumulate,
                Matrices(out));
}

}  // namespace dtrain::cuda
