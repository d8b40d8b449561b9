// What the kernels of attention on the matrix units share. A block of four warps has 64 rows (queries, or
// keys), a warp 16 of them, and goes through tiles of the others, which are copied while it computes, as in
// Dao, "FlashAttention-2", 2023. Sums have 32 bits. How factors are multiplied is a type: BF16 and F16
// (half_tiles.cuh), SplitF32 and RoundedF32 (float_tiles.cuh).
#pragma once

#include "runtime/device/cuda/attention/heads.cuh"
#include "runtime/device/cuda/attention/matrix_units.cuh"
#include "runtime/device/cuda/attention/tiles.h"
#include "runtime/device/cuda/loads.cuh"

namespace dtrain::cuda::attention {

constexpr int kTileThreads = kWarps * kWarp, kRowsOfWarp = 16, kRowsOfBlock = kWarps * kRowsOfWarp;
constexpr float kLog2E = 1.4426950408889634F;

/// f32 in two parts that the units know, with all products that a sum of f32 would notice.
struct SplitF32 {};
/// f32 rounded to what the units know (DeviceOptions::tf32).
struct RoundedF32 {};

template <class T>
constexpr bool kIsF32 = std::is_same_v<T, SplitF32> || std::is_same_v<T, RoundedF32>;
/// What lies in memory where factors are T.
template <class T>
using Element = std::conditional_t<kIsF32<T>, float, T>;

/// Blocks that a multiprocessor is to have at once: few enough that their registers suffice. kMatrices: how
/// many a warp has rows of.
template <class T, int W, bool kPlain, int kMatrices>
constexpr int kBlocksAtOnce = kPlain&& W == 64 && !(kIsF32<T> && kMatrices == 2) ? 3 : 2;

/// Rows of a tile of the others where a warp has one matrix of them to multiply by: what the registers allow,
/// and of f32 what fits shared memory.
template <class T, int W>
constexpr int kTileRows = (W == 64 ? 64 : 32) / (kIsF32<T> ? 2 : 1);
/// The same where it has two.
template <class T, int W, bool kPlain>
constexpr int kNarrowTileRows = W == 64 && (kPlain || !kIsF32<T>) ? 32 : 16;

/// N rows of up to W elements in shared memory; rows are 16 bytes longer, so that eight of them meet in no
/// bank.
template <class T, int N, int W>
struct SharedTile {
  static constexpr int kPack = kWide<Element<T>>;
  alignas(16) Element<T> at[N][W + kPack];

  /// Begins to copy `count` rows, zeros behind them and behind their `width`. The whole block calls it.
  __device__ __forceinline__ void begin_read(const Element<T>* from, std::int64_t row, std::int64_t count,
                                             int width) {
    constexpr int kChunks = W / kPack;
#pragma unroll
    for (int c = 0; c < N * kChunks / kTileThreads; ++c) {
      const int i = c * kTileThreads + static_cast<int>(threadIdx.x), r = i / kChunks,
                column = i % kChunks * kPack;
      const bool is_there = r < count && column < width;
      begin_copy(&at[r][column], is_there ? from + r * row + column : from, is_there);
    }
  }
};

/// A warp's 16 rows of one of its kMatrices matrices as left factors, zeros where there are none.
template <class T, int W, int kMatrices = 1>
struct OwnRows;

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

/// A logarithm as exp_less() subtracts it.
template <class T>
__device__ __forceinline__ float exponent(float x) {
  return kIsF32<T> ? x : x * kLog2E;
}
/// e to the power of x, less an exponent(). f32 is subtracted first, so that what is nearly equal loses
/// nothing.
template <class T>
__device__ __forceinline__ float exp_less(float x, float less) {
  return kIsF32<T> ? expf(x - less) : exp2f(x * kLog2E - less);
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

/// Calls f with a value of the type that says how elements of `dtype` (bf16, f16, f32) are multiplied.
template <class F>
void dispatch_factor(const Context& context, DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(BF16{});
  if (dtype == DType::f16) return f(F16{});
  if (context.options.tf32) return f(RoundedF32{});
  f(SplitF32{});
}

}  // namespace dtrain::cuda::attention
