// How a kernel walks several strided arrays of one shape together: dimensions sorted by the first array's
// strides and merged where possible, so that dense arrays of any layout become one dimension.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/device/cuda/divisor.h"
#include "runtime/device/dims.h"

namespace dtrain::cuda {

/// Passed to kernels by value. `extent` and `stride` go from the outermost dimension to the innermost.
template <int N>
struct Layout {
  std::int64_t count = 1;  ///< elements; 0 when there is nothing to do
  int rank = 0;
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank][N] = {};
  Divisor by_extent[kMaxRank];

  /// Every array is one dense run in the same order: element i is at offset i of each.
  bool is_dense() const noexcept {
    if (rank == 0) return true;
    if (rank > 1) return false;
    for (int a = 0; a < N; ++a) {
      if (stride[0][a] != 1) return false;
    }
    return true;
  }

  /// Offsets, in elements, of element `index` in each array.
  DTRAIN_KERNEL_INLINE void locate(std::int64_t index, std::int64_t (&offsets)[N]) const {
    for (int a = 0; a < N; ++a) offsets[a] = 0;
    if (rank == 0) return;
    for (int d = rank - 1; d > 0; --d) {
      const std::int64_t outer = by_extent[d](index), place = index - outer * extent[d];
      for (int a = 0; a < N; ++a) offsets[a] += place * stride[d][a];
      index = outer;
    }
    for (int a = 0; a < N; ++a) offsets[a] += index * stride[0][a];
  }
};

/// `strides[a]` are array a's, all over `shape`.
template <int N>
Layout<N> make_layout(const Dims& shape, const std::array<Dims, N>& strides) {
  Layout<N> layout;
  layout.count = shape.product();
  if (layout.count == 0) return layout;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    int at = layout.rank++;
    for (; at > 0 && layout.stride[at - 1][0] < strides[0][i]; --at) {
      layout.extent[at] = layout.extent[at - 1];
      for (int a = 0; a < N; ++a) layout.stride[at][a] = layout.stride[at - 1][a];
    }
    layout.extent[at] = shape[i];
    for (int a = 0; a < N; ++a) layout.stride[at][a] = strides[static_cast<std::size_t>(a)][i];
  }
  int kept = 0;
  for (int i = 1; i < layout.rank; ++i) {
    bool joins = true;
    for (int a = 0; a < N; ++a)
      joins = joins && layout.stride[kept][a] == layout.stride[i][a] * layout.extent[i];
    if (joins) {
      layout.extent[kept] *= layout.extent[i];
    } else {
      layout.extent[++kept] = layout.extent[i];
    }
    for (int a = 0; a < N; ++a) layout.stride[kept][a] = layout.stride[i][a];
  }
  if (layout.rank > 0) layout.rank = kept + 1;
  for (int d = 0; d < layout.rank; ++d) layout.by_extent[d] = Divisor(layout.extent[d]);
  return layout;
}

}  // namespace dtrain::cuda
