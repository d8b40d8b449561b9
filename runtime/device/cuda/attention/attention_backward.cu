// Gradients of attention, the weights computed again from the log-sums: a warp has a query, for the gradients
// of queries, or a key, for those of keys and values. No sum depends on the order of threads. For float64 and
// for rows that are not aligned; all else goes to the matrix units, tiles_backward.cu.
#include "runtime/device/cuda/attention/heads.cuh"
#include "runtime/device/cuda/attention/tiles.h"

namespace dtrain::cuda {
namespace {

using namespace attention;

/// What the kernels of backward read.
template <class T>
struct Given {
  Heads<const T> query, key, value, output, grad;
  const Compute<T>* log_sums;
};

template <class T, int W>
__global__ void query_gradient_kernel(Call<Compute<T>> call, Given<T> given, Heads<T> to) {
  using C = Compute<T>;
  __shared__ Tile<C, W> tile;
  __shared__ C own[kWarps][W], own_grad[kWarps][W];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t parts = (call.queries + kWarps - 1) / kWarps;
  for (std::int64_t block = blockIdx.x; block < call.batch * call.heads * parts; block += gridDim.x) {
    const std::int64_t row = block / parts, entry = row / call.heads, head = row - entry * call.heads;
    const std::int64_t first = (block - row * parts) * kWarps, i = first + warp;
    const std::int64_t key_head = head / (call.heads / call.key_heads);
    const bool is_query = i < call.queries;
    keep_row(given.query.at(entry, head, i), is_query, call.width, lane, own[warp]);
    keep_row(given.grad.at(entry, head, i), is_query, call.value_width, lane, own_grad[warp]);
    C delta = 0;
    for (int c = lane; is_query && c < call.value_width; c += kWarp) {
      delta += load(given.grad.at(entry, head, i)[c]) * load(given.output.at(entry, head, i)[c]);
    }
    delta = warp_sum(delta);
    const C log_sum = is_query ? given.log_sums[row * call.queries + i] : C(0);
    C sums[W / kWarp] = {};
    const std::int64_t end = call.end_for(entry, min(first + kWarps, call.queries) - 1);
    for (std::int64_t j0 = 0; j0 < end; j0 += kWarp) {
      const std::int64_t j = j0 + lane;
      const bool is_pair = is_query && j < end;
      tile.read(given.value.at(entry, key_head, j0), given.value.row, end - j0, call.value_width);
      C slope = tile.product(own_grad[warp], call.value_width, lane);
      tile.read(given.key.at(entry, key_head, j0), given.key.row, end - j0, call.width);
      const C product = tile.product(own[warp], call.width, lane);
      if (is_pair) {
        const C weight = exp(call.score(entry, head, i, j, product) - log_sum);
        slope = weight * (slope * call.kept(entry, head, i, j) - delta);
      }
      tile.add_rows(is_pair ? slope : C(0), call.width, lane, sums);
    }
    __syncthreads();  // `own` and `own_grad` are written again
    if (is_query) write_row<C, W>(sums, call.scale, call.width, lane, to.at(entry, head, i));
  }
}

/// A warp's key meets a tile of queries, one a lane.
template <class T, int W>
__global__ void key_gradient_kernel(Call<Compute<T>> call, Given<T> given, Heads<T> to_key,
                                    Heads<T> to_value) {
  using C = Compute<T>;
  __shared__ Tile<C, W> tile;
  __shared__ C own[kWarps][W], own_value[kWarps][W];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t parts = (call.keys + kWarps - 1) / kWarps, group = call.heads / call.key_heads;
  for (std::int64_t block = blockIdx.x; block < call.batch * call.key_heads * parts; block += gridDim.x) {
    const std::int64_t row = block / parts, entry = row / call.key_heads,
                       key_head = row - entry * call.key_heads;
    const std::int64_t first = (block - row * parts) * kWarps, j = first + warp;
    const bool is_key = j < call.keys_of(entry);
    keep_row(given.key.at(entry, key_head, j), is_key, call.width, lane, own[warp]);
    keep_row(given.value.at(entry, key_head, j), is_key, call.value_width, lane, own_value[warp]);
    C sums[W / kWarp] = {}, value_sums[W / kWarp] = {};
    // Queries before the first that sees this block's first key see none of its keys.
    const std::int64_t unseen =
        call.causal ? max(std::int64_t{0}, first - call.first_query) / kWarp * kWarp : 0;
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const C* log_sums = given.log_sums + (entry * call.heads + head) * call.queries;
      for (std::int64_t i0 = unseen; i0 < call.queries; i0 += kWarp) {
        const std::int64_t i = i0 + lane, rows = call.queries - i0;
        const bool is_pair = is_key && i < call.queries;
        tile.read(given.query.at(entry, head, i0), given.query.row, rows, call.width);
        const C product = tile.product(own[warp], call.width, lane);
        C weight = 0, slope = 0, kept = 0;
        if (is_pair) {
          weight = exp(call.score(entry, head, i, j, product) - log_sums[i]);
          kept = call.kept(entry, head, i, j);
        }
        tile.read(given.grad.at(entry, head, i0), given.grad.row, rows, call.value_width);
        if (is_pair) {
          C delta = 0;
          const T* out = given.output.at(entry, head, i);
          for (int c = 0; c < call.value_width; ++c) delta += tile.at[lane][c] * load(out[c]);
          slope = weight * (tile.product(own_value[warp], call.value_width, lane) * kept - delta);
        }
        tile.add_rows(weight * kept, call.value_width, lane, value_sums);
        tile.read(given.query.at(entry, head, i0), given.query.row, rows, call.width);
        tile.add_rows(slope, call.width, lane, sums);
      }
    }
    __syncthreads();  // `own` and `own_value` are written again
    if (j >= call.keys) continue;
    if (to_key.data != nullptr)
      write_row<C, W>(sums, call.scale, call.width, lane, to_key.at(entry, key_head, j));
    if (to_value.data != nullptr) {
      write_row<C, W>(value_sums, C(1), call.value_width, lane, to_value.at(entry, key_head, j));
    }
  }
}

}  // namespace

void CudaKernels::attention_backward(const AttentionRule& rule, const AttentionMasks& masks,
                                     const View& query, const View& key, const View& value,
                                     const View& output, const View& log_sums, const View& grad_output,
                                     const View& grad_query, const View& grad_key, const View& grad_value) {
  if (attention::suits_matrix_units(
          {&query, &key, &value, &output, &grad_output, &grad_query, &grad_key, &grad_value})) {
    return attention::attention_backward_by_tiles(context_, rule, masks, query, key, value, output, log_sums,
                                                  grad_output, grad_query, grad_key, grad_value);
  }
  dispatch_floating("attention_backward", query.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    const Call<C> call(rule, masks, query, key, value);
    const Given<T> given{Heads<const T>(query),  Heads<const T>(key),         Heads<const T>(value),
                         Heads<const T>(output), Heads<const T>(grad_output), log_sums.as<const C>()};
    dispatch_head_width(query, value, [&](auto width) {
      constexpr int W = decltype(width)::value;
      if (grad_query.data != nullptr && grad_query.numel() != 0) {
        DTRAIN_LAUNCH("attention_backward", context_.stream,
                      blocks_for_heads(context_, call.batch * call.heads, call.queries), kWarp * kWarps,
                      (query_gradient_kernel<T, W>), call, given, Heads<T>(grad_query));
      }
      if ((grad_key.data != nullptr || grad_value.data != nullptr) && call.batch * call.keys != 0) {
        DTRAIN_LAUNCH("attention_backward", context_.stream,
                      blocks_for_heads(context_, call.batch * call.key_heads, call.keys), kWarp * kWarps,
                      (key_gradient_kernel<T, W>), call, given, Heads<T>(grad_key), Heads<T>(grad_value));
      }
    });
  });
}

}  // namespace dtrain::cuda
