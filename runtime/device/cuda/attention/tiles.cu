// Attention forward on the matrix units; see tiles.cuh.
#include "runtime/device/cuda/attention/float_tiles.cuh"
#include "runtime/device/cuda/attention/half_tiles.cuh"

namespace dtrain::cuda {
namespace attention {
namespace {

template <class T, int W, bool kPlain>
__global__ void __launch_bounds__(kTileThreads, (kBlocksAtOnce<T, W, kPlain, 1>))
    attention_tile_kernel(Call<float> call, Heads<const Element<T>> query, Heads<const Element<T>> key,
                          Heads<const Element<T>> value, Heads<Element<T>> output, float* log_sums) {
  constexpr int N = kTileRows<T, W>;
  __shared__ SharedTile<T, N, W> keys[2], values[2];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t block = blockIdx.x; block < QueryBlock::count(call); block += gridDim.x) {
    const auto [row, entry, head, key_head, own, end] = QueryBlock(call, block);
    const OwnRows<T, W> queries(query.at(entry, head, own), query.row, call.queries - own, call.width, lane);
    const auto begin_read = [&](std::int64_t tile, int stage) {
      const std::int64_t j0 = tile * N;
      keys[stage].begin_read(key.at(entry, key_head, j0), key.row, end - j0, call.width);
      values[stage].begin_read(value.at(entry, key_head, j0), value.row, end - j0, call.value_width);
      end_group();
    };
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    SumTile sums[W / 8] = {};
    for_tiles((end + N - 1) / N, begin_read, [&](std::int64_t tile, int stage) {
      const std::int64_t j0 = tile * N;
      SumTile scores[N / 8];
      multiply_rows<T, N, W>(queries, keys[stage], lane, scores);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const std::int64_t i = own + lane / 4 + side * 8;
        const int seen = keys_seen<N>(call, i, j0, end) - lane % 4 * 2;
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float& score = scores[n].at[2 * side + c];
            score = masked_score<kPlain>(call, entry, head, i, j0 + n * 8 + lane % 4 * 2 + c,
                                         n * 8 + c < seen, score);
            if (score > most || score != score) most = score;
          }
        }
        most = row_max(most);
        const float higher = most > top[side] || most != most ? most : top[side];
        const float base = higher == -INFINITY ? 0.0F : exponent<T>(higher);
        float added = 0;
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float& weight = scores[n].at[2 * side + c];
            weight = exp_less<T>(weight, base);
            added += weight;
            weight *=
                kept_share<kPlain>(call, entry, head, i, j0 + n * 8 + lane % 4 * 2 + c, n * 8 + c < seen);
          }
        }
        const float shrink = exp_less<T>(top[side], base);
        sum[side] = sum[side] * shrink + row_sum(added);
        top[side] = higher;
#pragma unroll
        for (int n = 0; n < W / 8; ++n) {
          sums[n].at[2 * side] *= shrink;
          sums[n].at[2 * side + 1] *= shrink;
        }
      }
      add_weighted_rows<T, N, W>(scores, values[stage], lane, sums);
    });
    float factors[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const bool sees_none = sum[side] == 0 && call.bias.data == nullptr;
      factors[side] = sees_none ? 0.0F : 1.0F / sum[side];
      const std::int64_t i = own + lane / 4 + side * 8;
      if (lane % 4 == 0 && i < call.queries) {
        log_sums[row * call.queries + i] = sees_none ? INFINITY : top[side] + logf(sum[side]);
      }
    }
    write_rows<T, W>(sums, factors, output.at(entry, head, own), output.row, call.queries - own,
                     call.value_width, lane);
  }
}

}  // namespace

bool suits_matrix_units(std::initializer_list<const View*> views) {
  for (const View* view : views) {
    if (view->data == nullptr) continue;
    if (view->dtype != DType::bf16 && view->dtype != DType::f16 && view->dtype != DType::f32) return false;
    const auto pack = static_cast<std::int64_t>(16 / size_of(view->dtype));
    if (!is_aligned(view->data, 16) || view->shape[view->rank() - 1] % pack != 0) return false;
    for (int d = 0; d + 1 < view->rank(); ++d) {
      if (view->shape[d] != 1 && view->strides[d] % pack != 0) return false;
    }
  }
  return true;
}

void attention_by_tiles(const Context& context, const AttentionRule& rule, const AttentionMasks& masks,
                        const View& query, const View& key, const View& value, const View& output,
                        const View& log_sums) {
  dispatch_factor(context, query.dtype, [&](auto tag) {
    using T = decltype(tag);
    using E = Element<T>;
    dispatch_head_width(query, value, [&](auto width) {
      constexpr int W = decltype(width)::value;
      const Call<float> call(rule, masks, query, key, value);
      dispatch_plain(masks, [&](auto plain) {
        constexpr bool kPlain = decltype(plain)::value;
        DTRAIN_LAUNCH("attention", context.stream,
                      blocks_of_rows(context, call.batch * call.heads, call.queries), kTileThreads,
                      (attention_tile_kernel<T, W, kPlain>), call, Heads<const E>(query), Heads<const E>(key),
                      Heads<const E>(value), Heads<E>(output), log_sums.as<float>());
      });
    });
  });
}

}  // namespace attention
}  // namespace dtrain::cuda
