// Products of elements of 16 bits on the matrix units; see tiles.cuh. Weights are rounded to 16 bits before
// they are multiplied.
#pragma once

#include "runtime/device/cuda/attention/tiles.cuh"

namespace dtrain::cuda::attention {

/// Right factors whose columns are rows of the tile, n and n + 8 on, at elements k to k + 15.
template <class Tile>
__device__ __forceinline__ void rows_as_columns(const Tile& tile, int n, int k, int lane,
                                                RightTile (&to)[2]) {
  unsigned squares[4];
  load_squares<false>(squares, &tile.at[n + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
  to[0] = {{squares[0], squares[1]}}, to[1] = {{squares[2], squares[3]}};
}
/// Right factors whose rows are rows k to k + 15 of the tile, at elements n and n + 8 on.
template <class Tile>
__device__ __forceinline__ void rows_as_rows(const Tile& tile, int k, int n, int lane, RightTile (&to)[2]) {
  unsigned squares[4];
  load_squares<true>(squares, &tile.at[k + lane / 8 % 2 * 8 + lane % 8][n + lane / 16 * 8]);
  to[0] = {{squares[0], squares[1]}}, to[1] = {{squares[2], squares[3]}};
}

/// A warp's 16 rows as left factors, read from global memory once; zeros where there are none.
template <class T, int W, int kMatrices>
requires(!kIsF32<T>) struct OwnRows<T, W, kMatrices> {
  __device__ __forceinline__ OwnRows(const T* from, std::int64_t row, std::int64_t count, int width,
                                     int lane) {
#pragma unroll
    for (int k = 0; k < W / 16; ++k) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int r = lane / 4 + part % 2 * 8, column = k * 16 + part / 2 * 8 + lane % 4 * 2;
        if (r < count && column < width)
          tiles[k].at[part] = *reinterpret_cast<const unsigned*>(from + r * row + column);
      }
    }
  }
  LeftTile tiles[W / 16];
};

/// products[row of the warp][row of the tile].
template <class T, int N, int W, class Own>
requires(!kIsF32<T>) __device__ __forceinline__
    void multiply_rows(const Own& own, const SharedTile<T, N, W>& tile, int lane,
                       SumTile (&products)[N / 8]) {
#pragma unroll
  for (int n = 0; n < N / 8; n += 2) {
    products[n] = products[n + 1] = {};
#pragma unroll
    for (int k = 0; k < W / 16; ++k) {
      RightTile right[2];
      rows_as_columns(tile, n * 8, k * 16, lane, right);
      multiply_add<T>(products[n], own.tiles[k], right[0]);
      multiply_add<T>(products[n + 1], own.tiles[k], right[1]);
    }
  }
}

/// sums[row of the warp] += Σ weights[row][row of the tile] · that row. Sums and left factors lie alike in
/// the lanes.
template <class T, int N, int W>
requires(!kIsF32<T>) __device__ __forceinline__
    void add_weighted_rows(const SumTile (&weights)[N / 8], const SharedTile<T, N, W>& tile, int lane,
                           SumTile (&sums)[W / 8]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    const auto &near = weights[2 * k].at, &far = weights[2 * k + 1].at;
    const LeftTile left{{pack_pair<T>(near[0], near[1]), pack_pair<T>(near[2], near[3]),
                         pack_pair<T>(far[0], far[1]), pack_pair<T>(far[2], far[3])}};
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      RightTile right[2];
      rows_as_rows(tile, k * 16, n * 8, lane, right);
      multiply_add<T>(sums[n], left, right[0]);
      multiply_add<T>(sums[n + 1], left, right[1]);
    }
  }
}

/// Row r and row r + 8 of the warp's, times their factors, where they are among `count` rows.
template <class T, int W>
requires(!kIsF32<T>) __device__ __forceinline__
    void write_rows(const SumTile (&sums)[W / 8], const float (&factors)[2], T* to, std::int64_t row,
                    std::int64_t count, int width, int lane) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int r = lane / 4 + side * 8;
    if (r >= count) continue;
#pragma unroll
    for (int n = 0; n < W / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column >= width) continue;
      const float first = sums[n].at[2 * side] * factors[side],
                  second = sums[n].at[2 * side + 1] * factors[side];
      *reinterpret_cast<unsigned*>(to + r * row + column) = pack_pair<T>(first, second);
    }
  }
}

}  // namespace dtrain::cuda::attention
