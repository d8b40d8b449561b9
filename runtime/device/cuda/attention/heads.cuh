// What the kernels of attention share: arrays of heads, who sees whom, and tiles of 32 rows that a block
// reads together. A warp has one query (or key) and each of its lanes one row of the tile.
#pragma once

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/philox.h"

namespace dtrain::cuda::attention {

constexpr int kWarp = 32, kWarps = 4;
constexpr unsigned kAllLanes = 0xffffffffU;

/// [B, groups, heads of a group, rows, width], or without the third: steps in elements; null data: absent.
/// Heads are numbered group by group.
template <class T>
struct Heads {
  Heads() = default;
  explicit Heads(const View& view) : data(static_cast<T*>(view.data)) {
    if (data == nullptr) return;
    batch = view.strides[0], group = view.strides[1], row = view.strides[view.rank() - 2];
    if (view.rank() == 4) return;
    head = view.strides[2], shared = view.shape[2];
  }
  __device__ T* at(std::int64_t entry, std::int64_t h, std::int64_t r) const {
    const std::int64_t g = h / shared;
    return data + entry * batch + g * group + (h - g * shared) * head + r * row;
  }
  T* data = nullptr;
  std::int64_t batch = 0, group = 0, head = 0, row = 0, shared = 1;
};

/// A call's extents and masks; C is what it computes in.
template <class C>
struct Call {
  Call(const AttentionRule& rule, const AttentionMasks& masks, const View& query, const View& key,
       const View& value)
      : batch(query.shape[0]),
        heads(query.shape[1] * query.shape[2]),
        key_heads(query.shape[1]),
        queries(query.shape[3]),
        keys(key.shape[2]),
        width(static_cast<int>(query.shape[4])),
        value_width(static_cast<int>(value.shape[3])),
        scale(static_cast<C>(rule.scale)),
        causal(rule.causal),
        first_query(rule.first_query),
        bias(masks.bias),
        bias_column(masks.bias.data == nullptr ? 0 : masks.bias.strides[4]),
        lengths(masks.lengths.as<const std::int64_t>()),
        segments(masks.segments.as<const std::int32_t>()),
        keep(masks.keep_share),
        seed(masks.numbers.seed),
        layer(masks.numbers.layer),
        step(masks.numbers.step.as<const std::int64_t>()),
        names(masks.numbers.rows.as<const std::int64_t>()),
        first_place(masks.numbers.first) {}

  __device__ std::int64_t keys_of(std::int64_t entry) const {
    return lengths == nullptr ? keys : max(std::int64_t{0}, min(keys, lengths[entry]));
  }
  /// The keys before this one are all that queries up to `last` may see.
  __device__ std::int64_t end_for(std::int64_t entry, std::int64_t last) const {
    const std::int64_t all = keys_of(entry);
    return causal ? min(all, first_query + last + 1) : all;
  }
  /// The score of a key before keys_of(entry); -∞ where the query does not see it.
  __device__ C score(std::int64_t entry, std::int64_t head, std::int64_t i, std::int64_t j, C product) const {
    bool sees = !causal || j <= first_query + i;
    if (segments != nullptr) {
      const std::int32_t* ids = segments + entry * keys;
      sees = sees && ids[first_query + i] == ids[j];
    }
    if (!sees) return -static_cast<C>(INFINITY);
    const C scaled = product * scale;
    return bias.data == nullptr ? scaled : scaled + bias.at(entry, head, i)[j * bias_column];
  }
  /// What dropout multiplies a weight by.
  __device__ C kept(std::int64_t entry, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (keep == 1) return C(1);
    const std::uint64_t key = philox_key(seed, layer, static_cast<std::uint64_t>(*step));
    const std::int64_t place = first_place + (head * queries + i) * ((keys + 3) / 4 * 4) + j;
    const auto row = static_cast<std::uint64_t>(names == nullptr ? entry : names[entry]);
    const Philox random(key, static_cast<std::uint64_t>(place) / 4, row);
    const int word = static_cast<int>(place % 4);
    const std::uint32_t low = word % 2 == 0 ? random.words[0] : random.words[1];
    const std::uint32_t high = word % 2 == 0 ? random.words[2] : random.words[3];
    const float drawn = unit_interval(word < 2 ? low : high);
    return drawn < static_cast<float>(keep) ? static_cast<C>(1.0 / keep) : C(0);
  }

  std::int64_t batch, heads, key_heads, queries, keys;
  int width, value_width;
  C scale;
  bool causal;
  std::int64_t first_query;
  Heads<const C> bias;
  std::int64_t bias_column;
  const std::int64_t* lengths;
  const std::int32_t* segments;
  double keep;
  std::uint64_t seed, layer;
  const std::int64_t *step, *names;
  std::int64_t first_place;
};

template <class C>
__device__ C warp_max(C value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const C other = __shfl_xor_sync(kAllLanes, value, step);
    if (other > value || other != other) value = other;
  }
  return value;
}
template <class C>
__device__ C warp_sum(C value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// 32 rows of up to W elements, padded so that lanes that each read a row meet in no bank.
template <class C, int W>
struct Tile {
  C at[kWarp][W + 1];

  /// `count` rows from `from` on, zeros behind them. The whole block calls it, between barriers of its own.
  template <class T>
  __device__ void read(const T* from, std::int64_t row, std::int64_t count, int width) {
    __syncthreads();  // all have done with what was here
    for (int i = static_cast<int>(threadIdx.x); i < kWarp * width; i += kWarp * kWarps) {
      const int r = i / width, c = i - r * width;
      at[r][c] = r < count ? load(from[r * row + c]) : C(0);
    }
    __syncthreads();
  }
  /// Of a vector and this lane's row.
  __device__ C product(const C* vector, int width, int lane) const {
    C sum = 0;
    for (int c = 0; c < width; ++c) sum += vector[c] * at[lane][c];
    return sum;
  }
  /// Adds Σ weight of lane j · row j to the columns lane, lane + 32, … of `sums`.
  __device__ void add_rows(C weight, int width, int lane, C (&sums)[W / kWarp]) const {
    for (int j = 0; j < kWarp; ++j) {
      const C share = __shfl_sync(kAllLanes, weight, j);
#pragma unroll
      for (int k = 0; k < W / kWarp; ++k) {
        if (lane + k * kWarp < width) sums[k] += share * at[j][lane + k * kWarp];
      }
    }
  }
};

template <class C, int W, class T>
__device__ void write_row(const C (&sums)[W / kWarp], C factor, int width, int lane, T* to) {
#pragma unroll
  for (int k = 0; k < W / kWarp; ++k) {
    if (lane + k * kWarp < width) to[lane + k * kWarp] = cast<T>(sums[k] * factor);
  }
}

/// This warp's row as numbers in shared memory; zeros where there is none.
template <class C, class T>
__device__ void keep_row(const T* from, bool is_row, int width, int lane, C* to) {
  for (int c = lane; c < width; c += kWarp) to[c] = is_row ? load(from[c]) : C(0);
}

/// Blocks of kWarps rows that the heads have, in a grid that strides over them.
inline unsigned blocks_for_heads(const Context& context, std::int64_t heads, std::int64_t rows) {
  return blocks_for(context, heads * ((rows + kWarps - 1) / kWarps) * kWarp * kWarps, kWarp * kWarps);
}

/// Calls f with the least of the supported widths, as a constant.
template <class F>
void dispatch_head_width(const View& query, const View& value, F&& f) {
  if (query.shape[4] <= 64 && value.shape[3] <= 64) return f(std::integral_constant<int, 64>());
  static_assert(kMostAttentionWidth == 128);
  f(std::integral_constant<int, 128>());
}

}  // namespace dtrain::cuda::attention
