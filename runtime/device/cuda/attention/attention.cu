// Attention forward (Dao et al., "FlashAttention", 2022): a warp has a query and goes through the keys, 32 at
// a time, with a softmax that is corrected as it goes. These kernels are for float64 and for rows that are
// not aligned; all else goes to the matrix units, tiles.cu.
#include "runtime/device/cuda/attention/heads.cuh"
#include "runtime/device/cuda/attention/tiles.h"

namespace dtrain::cuda {
namespace {

using namespace attention;

template <class T, int W>
__global__ void attention_kernel(Call<Compute<T>> call, Heads<const T> query, Heads<const T> key,
                                 Heads<const T> value, Heads<T> output, Compute<T>* log_sums) {
  using C = Compute<T>;
  __shared__ Tile<C, W> tile;
  __shared__ C own[kWarps][W];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t parts = (call.queries + kWarps - 1) / kWarps;
  for (std::int64_t block = blockIdx.x; block < call.batch * call.heads * parts; block += gridDim.x) {
    const std::int64_t row = block / parts, entry = row / call.heads, head = row - entry * call.heads;
    const std::int64_t first = (block - row * parts) * kWarps, i = first + warp;
    const std::int64_t key_head = head / (call.heads / call.key_heads);
    const bool is_query = i < call.queries;
    keep_row(query.at(entry, head, i), is_query, call.width, lane, own[warp]);
    C top = -static_cast<C>(INFINITY), sum = 0, sums[W / kWarp] = {};
    const std::int64_t end = call.end_for(entry, min(first + kWarps, call.queries) - 1);
    for (std::int64_t j0 = 0; j0 < end; j0 += kWarp) {
      const std::int64_t j = j0 + lane;
      tile.read(key.at(entry, key_head, j0), key.row, end - j0, call.width);
      const C product = tile.product(own[warp], call.width, lane);
      const bool is_pair = is_query && j < end;
      const C score = is_pair ? call.score(entry, head, i, j, product) : -static_cast<C>(INFINITY);
      tile.read(value.at(entry, key_head, j0), value.row, end - j0, call.value_width);
      const C most = warp_max(score), higher = most > top || most != most ? most : top;
      const C base = higher == -static_cast<C>(INFINITY) ? C(0) : higher;
      C weight = exp(score - base);
      const C shrink = exp(top - base);
      sum = sum * shrink + warp_sum(weight);
      top = higher;
      if (is_pair) weight *= call.kept(entry, head, i, j);
#pragma unroll
      for (int k = 0; k < W / kWarp; ++k) sums[k] *= shrink;
      tile.add_rows(weight, call.value_width, lane, sums);
    }
    __syncthreads();  // `own` is written again
    if (!is_query) continue;
    const bool sees_none = sum == 0 && call.bias.data == nullptr;
    write_row<C, W>(sums, sees_none ? C(0) : C(1) / sum, call.value_width, lane, output.at(entry, head, i));
    if (lane == 0) log_sums[row * call.queries + i] = sees_none ? static_cast<C>(INFINITY) : top + log(sum);
  }
}

}  // namespace

void CudaKernels::attention(const AttentionRule& rule, const AttentionMasks& masks, const View& query,
                            const View& key, const View& value, const View& output, const View& log_sums) {
  if (log_sums.numel() == 0) return;
  if (attention::suits_matrix_units({&query, &key, &value, &output})) {
    return attention::attention_by_tiles(context_, rule, masks, query, key, value, output, log_sums);
  }
  dispatch_floating("attention", query.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    dispatch_head_width(query, value, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const Call<C> call(rule, masks, query, key, value);
      DTRAIN_LAUNCH("attention", context_.stream,
                    blocks_for_heads(context_, call.batch * call.heads, call.queries), kWarp * kWarps,
                    (attention_kernel<T, W>), call, Heads<const T>(query), Heads<const T>(key),
                    Heads<const T>(value), Heads<T>(output), log_sums.as<C>());
    });
  });
}

}  // namespace dtrain::cuda
