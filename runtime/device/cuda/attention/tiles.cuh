// What the kernels of attention on the matrix units share. A block of four warps has 64 rows (queries, or
// keys), a warp 16 of them, and goes through tiles of the others, which are copied while it computes.
// Elements have 16 bits, sums 32; weights are rounded to 16 bits before they are multiplied, as in Dao,
// "FlashAttention-2", 2023.
#pragma once

#include "runtime/device/cuda/attention/heads.cuh"
#include "runtime/device/cuda/attention/matrix_units.cuh"
#include "runtime/device/cuda/attention/tiles.h"
#include "runtime/device/cuda/loads.cuh"

namespace dtrain::cuda::attention {

constexpr int kTileThreads = kWarps * kWarp, kRowsOfWarp = 16, kRowsOfBlock = kWarps * kRowsOfWarp;
constexpr float kLog2E = 1.4426950408889634F;

/// Blocks that a multiprocessor is to have at once: few enough that their registers suffice.
template <int W, bool kPlain>
constexpr int kBlocksAtOnce = kPlain&& W == 64 ? 3 : 2;

/// Rows of a tile of the others: what the registers allow.
template <int W>
constexpr int kTileRows = W == 64 ? 64 : 32;
/// The same where a warp keeps two sums of its rows' width.
template <int W>
constexpr int kNarrowTileRows = W == 64 ? 32 : 16;

/// N rows of up to W elements in shared memory; rows are 16 bytes longer, so that eight of them meet in no
/// bank.
template <class T, int N, int W>
struct SharedTile {
  static constexpr int kRow = W + 8;
  alignas(16) T at[N][kRow];

  /// Begins to copy `count` rows, zeros behind them and behind their `width`. The whole block calls it.
  __device__ __forceinline__ void begin_read(const T* from, std::int64_t row, std::int64_t count, int width) {
    constexpr int kChunks = W / 8;
#pragma unroll
    for (int c = 0; c < N * kChunks / kTileThreads; ++c) {
      const int i = c * kTileThreads + static_cast<int>(threadIdx.x), r = i / kChunks,
                column = i % kChunks * 8;
      const bool is_there = r < count && column < width;
      begin_copy(&at[r][column], is_there ? from + r * row + column : from, is_there);
    }
  }
  /// Right factors whose columns are rows of this tile, n and n + 8 on, at elements k to k + 15.
  __device__ __forceinline__ void rows_as_columns(int n, int k, int lane, RightTile (&to)[2]) const {
    unsigned squares[4];
    load_squares<false>(squares, &at[n + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
    to[0] = {{squares[0], squares[1]}}, to[1] = {{squares[2], squares[3]}};
  }
  /// Right factors whose rows are rows k to k + 15 of this tile, at elements n and n + 8 on.
  __device__ __forceinline__ void rows_as_rows(int k, int n, int lane, RightTile (&to)[2]) const {
    unsigned squares[4];
    load_squares<true>(squares, &at[k + lane / 8 % 2 * 8 + lane % 8][n + lane / 16 * 8]);
    to[0] = {{squares[0], squares[1]}}, to[1] = {{squares[2], squares[3]}};
  }
};

/// A warp's 16 rows as left factors, read from global memory once; zeros where there are none.
template <class T, int W>
struct OwnRows {
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
template <class T, int N, int W>
__device__ __forceinline__ void multiply_rows(const OwnRows<T, W>& own, const SharedTile<T, N, W>& tile,
                                              int lane, SumTile (&products)[N / 8]) {
#pragma unroll
  for (int n = 0; n < N / 8; n += 2) {
    products[n] = products[n + 1] = {};
#pragma unroll
    for (int k = 0; k < W / 16; ++k) {
      RightTile right[2];
      tile.rows_as_columns(n * 8, k * 16, lane, right);
      multiply_add<T>(products[n], own.tiles[k], right[0]);
      multiply_add<T>(products[n + 1], own.tiles[k], right[1]);
    }
  }
}

/// sums[row of the warp] += Σ weights[row][row of the tile] · that row. Sums and left factors lie alike in
/// the lanes.
template <class T, int N, int W>
__device__ __forceinline__ void add_weighted_rows(const SumTile (&weights)[N / 8],
                                                  const SharedTile<T, N, W>& tile, int lane,
                                                  SumTile (&sums)[W / 8]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    const auto &near = weights[2 * k].at, &far = weights[2 * k + 1].at;
    const LeftTile left{{pack_pair<T>(near[0], near[1]), pack_pair<T>(near[2], near[3]),
                         pack_pair<T>(far[0], far[1]), pack_pair<T>(far[2], far[3])}};
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      RightTile right[2];
      tile.rows_as_rows(k * 16, n * 8, lane, right);
      multiply_add<T>(sums[n], left, right[0]);
      multiply_add<T>(sums[n + 1], left, right[1]);
    }
  }
}

/// Row r and row r + 8 of the warp's, times their factors, where they are among `count` rows.
template <class T, int W>
__device__ __forceinline__ void write_rows(const SumTile (&sums)[W / 8], const float (&factors)[2], T* to,
                                           std::int64_t row, std::int64_t count, int width, int lane) {
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

/// Goes through `count` tiles that lie in two stages: `begin_read(tile, stage)` begins to copy one, as a
/// group, while `use(tile, stage)` works on the one before it. The whole block calls it.
template <class BeginRead, class Use>
__device__ __forceinline__ void for_tiles(std::int64_t count, BeginRead begin_read, Use use) {
  if (count > 0) begin_read(0, 0);
  int stage = 0;
  for (std::int64_t tile = 0; tile < count; ++tile, stage ^= 1) {
    if (tile + 1 < count) {
      begin_read(tile + 1, stage ^ 1);
      await_groups<1>();
    } else {
      await_groups<0>();
    }
    __syncthreads();
    use(tile, stage);
    __syncthreads();  // this stage is written again
  }
}

/// A block's rows among the queries of all heads: the last queries see the most keys and come first.
struct QueryBlock {
  __device__ __forceinline__ QueryBlock(const Call<float>& call, std::int64_t block) {
    const std::int64_t parts = (call.queries + kRowsOfBlock - 1) / kRowsOfBlock;
    row = block / parts, entry = row / call.heads, head = row - entry * call.heads;
    key_head = head / (call.heads / call.key_heads);
    const std::int64_t first = (parts - 1 - (block - row * parts)) * kRowsOfBlock;
    own = first + static_cast<std::int64_t>(threadIdx.x) / kWarp * kRowsOfWarp;
    end = call.end_for(entry, min(first + kRowsOfBlock, call.queries) - 1);
  }
  /// How many there are.
  __device__ __forceinline__ static std::int64_t count(const Call<float>& call) {
    return call.batch * call.heads * ((call.queries + kRowsOfBlock - 1) / kRowsOfBlock);
  }
  std::int64_t row;  ///< of the heads of all entries
  std::int64_t entry, head, key_head;
  std::int64_t own;  ///< the warp's first query
  std::int64_t end;  ///< the keys before it are all that the block's queries may see
};

/// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float value) {
  for (int step = 1; step <= 2; step *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, step);
    if (other > value || other != other) value = other;
  }
  return value;
}
__device__ __forceinline__ float row_sum(float value) {
  for (int step = 1; step <= 2; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// Whether a query sees a range of keys and a score is nothing but its product, scaled. Most calls are so,
/// and a kernel of their own knows it (kPlain).
inline bool is_plain(const AttentionMasks& masks) {
  return masks.bias.data == nullptr && masks.segments.data == nullptr && masks.keep_share == 1;
}

/// Calls `f` with whether that is so, as a constant.
template <class F>
void dispatch_plain(const AttentionMasks& masks, F&& f) {
  if (is_plain(masks)) return f(std::true_type());
  f(std::false_type());
}

/// The score of query i and key j, -∞ where it is not seen: what is neither before `seen` nor there at all.
template <bool kPlain>
__device__ __forceinline__ float masked_score(const Call<float>& call, std::int64_t entry, std::int64_t head,
                                              std::int64_t i, std::int64_t j, bool seen, float product) {
  if constexpr (kPlain) {
    return seen ? product * call.scale : -INFINITY;
  } else {
    return seen ? call.score(entry, head, i, j, product) : -INFINITY;
  }
}
/// What dropout multiplies that pair's weight by.
template <bool kPlain>
__device__ __forceinline__ float kept_share(const Call<float>& call, std::int64_t entry, std::int64_t head,
                                            std::int64_t i, std::int64_t j, bool seen) {
  if constexpr (kPlain) {
    return 1;
  } else {
    return seen && call.keep != 1 ? call.kept(entry, head, i, j) : 1.0F;
  }
}

/// How many of the tile's first keys, from j0 on, query i may see by their places.
template <int N>
__device__ __forceinline__ int keys_seen(const Call<float>& call, std::int64_t i, std::int64_t j0,
                                         std::int64_t end) {
  if (i >= call.queries) return 0;
  const std::int64_t seen = (call.causal ? min(end, call.first_query + i + 1) : end) - j0;
  return static_cast<int>(max(std::int64_t{0}, min(std::int64_t{N}, seen)));
}

/// Blocks of kRowsOfBlock rows that the heads have, in a grid that strides over them.
inline unsigned blocks_of_rows(const Context& context, std::int64_t heads, std::int64_t rows) {
  return blocks_for(context, heads * ((rows + kRowsOfBlock - 1) / kRowsOfBlock), 1);
}

/// Calls f with a value of the type of 16 bits.
template <class F>
void dispatch_half(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(BF16{});
  f(F16{});
}

}  // namespace dtrain::cuda::attention
