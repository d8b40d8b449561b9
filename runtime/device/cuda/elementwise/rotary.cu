// Turns pairs of features by angles: a thread takes a pair, or one of the features that stay.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/divisor.h"
#include "runtime/device/cuda/launch.cuh"

namespace dtrain::cuda {
namespace {

/// Rows [B, H, L] of features, by strides.
struct Rows {
  explicit Rows(const View& view) : batch(view.strides[0]), head(view.strides[1]), row(view.strides[2]) {}
  std::int64_t batch, head, row;
};

template <class C>
struct Table {
  explicit Table(const View& view)
      : data(view.as<const C>()), batch(view.strides[0]), row(view.strides[1]), step(view.strides[2]) {}
  __device__ C at(std::int64_t b, std::int64_t r, std::int64_t i) const {
    return data[b * batch + r * row + i * step];
  }
  const C* data;
  std::int64_t batch, row, step;
};

struct Extents {
  std::int64_t heads, rows, pairs, items;  ///< items: pairs of a row, and features that stay
  std::int64_t count;
  Divisor by_items, by_rows, by_heads;
};

template <class T>
__global__ void rotary_kernel(Extents size, bool interleaved, bool back, Rows from, Rows to,
                              Table<Compute<T>> cosines, Table<Compute<T>> sines, const T* in, T* out) {
  using C = Compute<T>;
  for (std::int64_t e = first_item(); e < size.count; e += item_step()) {
    const std::int64_t line = size.by_items(e), i = e - line * size.items;
    const std::int64_t head_line = size.by_rows(line), r = line - head_line * size.rows;
    const std::int64_t b = size.by_heads(head_line), h = head_line - b * size.heads;
    const T* const x = in + b * from.batch + h * from.head + r * from.row;
    T* const y = out + b * to.batch + h * to.head + r * to.row;
    if (i >= size.pairs) {
      y[size.pairs + i] = x[size.pairs + i];
      continue;
    }
    const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? first + 1 : i + size.pairs;
    const C cosine = cosines.at(b, r, i), sine = back ? -sines.at(b, r, i) : sines.at(b, r, i);
    const C a = load(x[first]), c = load(x[second]);
    y[first] = cast<T>(a * cosine - c * sine);
    y[second] = cast<T>(c * cosine + a * sine);
  }
}

}  // namespace

void CudaKernels::rotary(const View& in, const View& cosines, const View& sines, bool interleaved, bool back,
                         const View& out) {
  if (in.numel() == 0) return;
  const std::int64_t heads = in.shape[1], rows = in.shape[2], pairs = cosines.shape[2],
                     items = in.shape[3] - pairs;
  const Extents size{heads,          rows,          pairs,         items, in.shape[0] * heads * rows * items,
                     Divisor(items), Divisor(rows), Divisor(heads)};
  dispatch_floating("rotary", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    DTRAIN_LAUNCH("rotary", context_.stream, blocks_for(context_, size.count), kThreads, rotary_kernel<T>,
                  size, interleaved, back, Rows(in), Rows(out), Table<C>(cosines), Table<C>(sines),
                  in.as<const T>(), out.as<T>());
  });
}

}  // namespace dtrain::cuda
