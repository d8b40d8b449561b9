// Products of f32 on the matrix units, which know 11 bits of a factor; see tiles.cuh. SplitF32: each factor
// is its nearest such number and what that leaves, and three of the four products of those are added: what is
// lost is 2^-22 of a product, as little as the rounding of f32's sums. Columns of sums lie so in the lanes
// that shared memory is read, and global memory written, 16 bytes at a time.
#pragma once

#include "runtime/device/cuda/attention/tiles.cuh"

namespace dtrain::cuda::attention {

/// One factor's words of 16 columns (left) or rows (right), in two tiles of 8; `low` is of SplitF32 only.
template <class Tile>
struct Factor {
  Tile high[2], low[2];
};

/// What the units are given for x, of which they ignore all but 11 bits. SplitF32: the nearest such number, a
/// NaN being one in `low`. RoundedF32: what they cut off is in the mean what was added, and such numbers stay
/// what they are: one multiplication, which keeps NaNs, in place of four instructions of cvt.rna.tf32.
template <class T>
__device__ __forceinline__ void set_factor(float x, unsigned& high, unsigned& low) {
  if constexpr (std::is_same_v<T, SplitF32>) {
    high = (bits_of(x) + 0x1000U) & 0xffffe000U;
    low = bits_of(x - float_of(high));
  } else {
    high = bits_of(x * 1.00033845F);  // 1 + ln 2 / 2^11
  }
}

/// sums += left · right over 16 columns. The units cut off the last bits of what they add to, so that a sum
/// of many terms would drift to zero: of SplitF32 they add few, and those are added as f32.
template <class T>
__device__ __forceinline__ void add_products(SumTile& sums, const Factor<LeftTile>& left,
                                             const Factor<RightTile>& right) {
  if constexpr (std::is_same_v<T, SplitF32>) {
    SumTile few;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      multiply_add<float>(few, left.low[k], right.high[k]);
      multiply_add<float>(few, left.high[k], right.low[k]);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) multiply_add<float>(few, left.high[k], right.high[k]);
#pragma unroll
    for (int at = 0; at < 4; ++at) sums.at[at] += few.at[at];
  } else {
#pragma unroll
    for (int k = 0; k < 2; ++k) multiply_add<float>(sums, left.high[k], right.high[k]);
  }
}

/// x, of which the compiler knows nothing: what is made of it is made where it is used, and takes no
/// registers before.
__device__ __forceinline__ float made_anew(float x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+f"(x));
#endif
  return x;
}
__device__ __forceinline__ const float* made_anew(const float* x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(x));
#endif
  return x;
}

/// Where a lane's words of its warp's rows are.
struct OwnPlace {
  __device__ __forceinline__ OwnPlace(const float* from, std::int64_t row, std::int64_t count, int columns,
                                      int lane)
      : near(from + lane / 4 * row + lane % 4), far(near + 8 * row), width(columns) {
    if (lane / 4 >= count) near = nullptr;
    if (lane / 4 + 8 >= count) far = nullptr;
  }
  /// Word `part` of the left tile of columns 8 k to 8 k + 7; zero where there is none. Widths are multiples
  /// of 4.
  __device__ __forceinline__ float element(int k, int part) const {
    const float* const at = made_anew(part % 2 == 0 ? near : far);
    const int column = k * 8 + part / 2 * 4;
    return at != nullptr && column < width ? in_global(at)[column] : 0.0F;
  }
  const float *near, *far;
  int width;
};

/// Up to 128 columns of one or two matrices are kept in registers; as factors they would take twice as many.
template <class T, int W, int kMatrices>
requires kIsF32<T>
struct OwnRows<T, W, kMatrices> {
  __device__ __forceinline__ OwnRows(const float* from, std::int64_t row, std::int64_t count, int width,
                                     int lane) {
    const OwnPlace place(from, row, count, width, lane);
#pragma unroll
    for (int k = 0; k < W / 8; ++k) {
#pragma unroll
      for (int part = 0; part < 4; ++part) at[k][part] = place.element(k, part);
    }
  }
  __device__ __forceinline__ float element(int k, int part) const { return made_anew(at[k][part]); }
  float at[W / 8][4];
};

/// What is more is read from memory, the first cache as a rule, for each tile.
template <class T>
requires kIsF32<T>
struct OwnRows<T, 128, 2> : OwnPlace {
  using OwnPlace::OwnPlace;
};

/// products[row of the warp][row of the tile].
template <class T, int N, int W, class Own>
requires kIsF32<T> __device__ __forceinline__ void multiply_rows(const Own& own,
                                                                 const SharedTile<T, N, W>& tile, int lane,
                                                                 SumTile (&products)[N / 8]) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) products[n] = {};
#pragma unroll
  for (int k = 0; k < W / 16; ++k) {
    Factor<LeftTile> left;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      set_factor<T>(own.element(2 * k + i / 4, i % 4), left.high[i / 4].at[i % 4], left.low[i / 4].at[i % 4]);
    }
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      unsigned words[4];
      load_squares<false>(words, &tile.at[n * 8 + lane % 8][k * 16 + lane / 8 * 4]);
      Factor<RightTile> right;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        set_factor<T>(float_of(words[i]), right.high[i / 2].at[i % 2], right.low[i / 2].at[i % 2]);
      }
      add_products<T>(products[n], left, right);
    }
  }
}

/// sums[row of the warp] += Σ weights[row][row of the tile] · that row. A lane's neighbouring sums 2 c, 2 c +
/// 1 are taken for its words c, c + 4 of a left factor, and the rows of the right one in the same order; of
/// four tiles of sums, columns 4 r to 4 r + 3 of 32 are column r of each.
template <class T, int N, int W>
requires kIsF32<T> __device__ __forceinline__ void add_weighted_rows(const SumTile (&weights)[N / 8],
                                                                     const SharedTile<T, N, W>& tile,
                                                                     int lane, SumTile (&sums)[W / 8]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    Factor<LeftTile> left;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // words 0 to 3: row r, row r + 8, then both again at the neighbour
      set_factor<T>(weights[2 * k + i / 4].at[i % 2 * 2 + i % 4 / 2], left.high[i / 4].at[i % 4],
                    left.low[i / 4].at[i % 4]);
    }
#pragma unroll
    for (int n = 0; n < W / 8; n += 4) {
      Factor<RightTile> right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float row[4];
        load_wide(&tile.at[k * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2][n * 8 + lane / 4 * 4], row);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          set_factor<T>(row[m], right[m].high[i / 2].at[i % 2], right[m].low[i / 2].at[i % 2]);
        }
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) add_products<T>(sums[n + m], left, right[m]);
    }
  }
}

/// Row r and row r + 8 of the warp's, times their factors, where they are among `count` rows; sums are those
/// of add_weighted_rows().
template <class T, int W>
requires kIsF32<T> __device__ __forceinline__ void write_rows(const SumTile (&sums)[W / 8],
                                                              const float (&factors)[2], float* to,
                                                              std::int64_t row, std::int64_t count, int width,
                                                              int lane) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int r = lane / 4 + side * 8;
    if (r >= count) continue;
#pragma unroll
    for (int i = 0; i < W / 16; ++i) {  // four columns of those that tiles 4 ⌊i / 2⌋ on have
      const int n = i / 2 * 4, column = n * 8 + lane % 4 * 8 + i % 2 * 4;
      if (column >= width) continue;
      Pack<float, 4> pack;
#pragma unroll
      for (int m = 0; m < 4; ++m) pack.at[m] = sums[n + m].at[2 * side + i % 2] * factors[side];
      *reinterpret_cast<Pack<float, 4>*>(to + r * row + column) = pack;
    }
  }
}

}  // namespace dtrain::cuda::attention
