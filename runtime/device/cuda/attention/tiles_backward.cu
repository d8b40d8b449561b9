// Gradients of attention on the matrix units, the weights computed again from the log-sums: blocks of queries
// go through keys for the gradients of queries, blocks of keys through queries for those of keys and values.
// No sum depends on the order of threads. See tiles.cuh.
#include "runtime/device/cuda/attention/float_tiles.cuh"
#include "runtime/device/cuda/attention/half_tiles.cuh"

namespace dtrain::cuda {
namespace attention {
namespace {

/// What both kernels read; deltas[row] = Σ output · its gradient, a query a row.
template <class E>
struct Given {
  Heads<const E> query, key, value, grad;
  const float *log_sums, *deltas;
};

template <class E>
__global__ void delta_kernel(Call<float> call, Heads<const E> output, Heads<const E> grad, float* deltas) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t rows = call.batch * call.heads * call.queries;
  for (std::int64_t row = first_item() / kWarp; row < rows; row += item_step() / kWarp) {
    const std::int64_t line = row / call.queries, i = row - line * call.queries, entry = line / call.heads;
    const std::int64_t head = line - entry * call.heads;
    const E* const out = output.at(entry, head, i);
    const E* const slope = grad.at(entry, head, i);
    float delta = 0;
    for (int c = lane * 2; c < call.value_width; c += 2 * kWarp) {
      delta += load(out[c]) * load(slope[c]) + load(out[c + 1]) * load(slope[c + 1]);
    }
    delta = warp_sum(delta);
    if (lane == 0) deltas[row] = delta;
  }
}

template <class T, int W, bool kPlain>
__global__ void __launch_bounds__(kTileThreads, (kBlocksAtOnce<T, W, kPlain, 2>))
    query_gradient_tile_kernel(Call<float> call, Given<Element<T>> given, Heads<Element<T>> to) {
  constexpr int N = kNarrowTileRows<T, W, kPlain>;
  __shared__ SharedTile<T, N, W> keys[2], values[2];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t block = blockIdx.x; block < QueryBlock::count(call); block += gridDim.x) {
    const auto [row, entry, head, key_head, own, end] = QueryBlock(call, block);
    const std::int64_t count = call.queries - own;
    const OwnRows<T, W, 2> queries(given.query.at(entry, head, own), given.query.row, count, call.width,
                                   lane);
    const OwnRows<T, W, 2> grads(given.grad.at(entry, head, own), given.grad.row, count, call.value_width,
                                 lane);
    float log_sum[2] = {INFINITY, INFINITY}, delta[2] = {};
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const std::int64_t i = own + lane / 4 + side * 8;
      if (i >= call.queries) continue;
      log_sum[side] = exponent<T>(given.log_sums[row * call.queries + i]);
      delta[side] = given.deltas[row * call.queries + i];
    }
    const auto begin_read = [&](std::int64_t tile, int stage) {
      const std::int64_t j0 = tile * N;
      keys[stage].begin_read(given.key.at(entry, key_head, j0), given.key.row, end - j0, call.width);
      values[stage].begin_read(given.value.at(entry, key_head, j0), given.value.row, end - j0,
                               call.value_width);
      end_group();
    };
    SumTile sums[W / 8] = {};
    for_tiles((end + N - 1) / N, begin_read, [&](std::int64_t tile, int stage) {
      const std::int64_t j0 = tile * N;
      SumTile scores[N / 8], slopes[N / 8];
      multiply_rows<T, N, W>(queries, keys[stage], lane, scores);
      multiply_rows<T, N, W>(grads, values[stage], lane, slopes);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const std::int64_t i = own + lane / 4 + side * 8;
        const int seen = keys_seen<N>(call, i, j0, end) - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const std::int64_t j = j0 + n * 8 + lane % 4 * 2 + c;
            const bool is_seen = n * 8 + c < seen;
            const float score =
                masked_score<kPlain>(call, entry, head, i, j, is_seen, scores[n].at[2 * side + c]);
            const float kept = kept_share<kPlain>(call, entry, head, i, j, is_seen);
            const float weight = exp_less<T>(score, log_sum[side]);
            float& slope = slopes[n].at[2 * side + c];
            slope = weight * (slope * kept - delta[side]);
          }
        }
      }
      add_weighted_rows<T, N, W>(slopes, keys[stage], lane, sums);
    });
    write_rows<T, W>(sums, {call.scale, call.scale}, to.at(entry, head, own), to.row, count, call.width,
                     lane);
  }
}

/// A tile of queries with what belongs to each of them.
template <class T, int N, int W>
struct QueryTile {
  SharedTile<T, N, W> queries, grads;
  float log_sums[N], deltas[N];

  __device__ __forceinline__ void begin_read(const Call<float>& call, const Given<Element<T>>& given,
                                             std::int64_t entry, std::int64_t head, std::int64_t i0) {
    const std::int64_t count = call.queries - i0, row = (entry * call.heads + head) * call.queries + i0;
    queries.begin_read(given.query.at(entry, head, i0), given.query.row, count, call.width);
    grads.begin_read(given.grad.at(entry, head, i0), given.grad.row, count, call.value_width);
    end_group();
    if (const int r = static_cast<int>(threadIdx.x); r < N) {
      log_sums[r] = r < count ? exponent<T>(given.log_sums[row + r]) : INFINITY;
      deltas[r] = r < count ? given.deltas[row + r] : 0.0F;
    }
  }
};

template <class T, int W, bool kPlain>
__global__ void __launch_bounds__(kTileThreads, (kBlocksAtOnce<T, W, kPlain, 2>))
    key_gradient_tile_kernel(Call<float> call, Given<Element<T>> given, Heads<Element<T>> to_key,
                             Heads<Element<T>> to_value) {
  constexpr int N = kNarrowTileRows<T, W, kPlain>;
  __shared__ QueryTile<T, N, W> tiles[2];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t parts = (call.keys + kRowsOfBlock - 1) / kRowsOfBlock,
                     group = call.heads / call.key_heads;
  for (std::int64_t block = blockIdx.x; block < call.batch * call.key_heads * parts; block += gridDim.x) {
    const std::int64_t row = block / parts, entry = row / call.key_heads,
                       key_head = row - entry * call.key_heads;
    const std::int64_t first = (block - row * parts) * kRowsOfBlock, own = first + warp * kRowsOfWarp;
    const std::int64_t keys_there = call.keys_of(entry), count = call.keys - own;
    const OwnRows<T, W, 2> keys(given.key.at(entry, key_head, own), given.key.row, keys_there - own,
                                call.width, lane);
    const OwnRows<T, W, 2> values(given.value.at(entry, key_head, own), given.value.row, keys_there - own,
                                  call.value_width, lane);
    // Queries before the first that sees this block's first key see none of its keys.
    const std::int64_t unseen = call.causal ? max(std::int64_t{0}, first - call.first_query) / N * N : 0;
    const std::int64_t tiles_of_head =
        first < keys_there ? max(std::int64_t{0}, (call.queries - unseen + N - 1) / N) : 0;
    const auto begin_read = [&](std::int64_t at, int stage) {
      const std::int64_t of = at / tiles_of_head;
      tiles[stage].begin_read(call, given, entry, key_head * group + of,
                              unseen + (at - of * tiles_of_head) * N);
    };
    SumTile key_sums[W / 8] = {}, value_sums[W / 8] = {};
    for_tiles(group * tiles_of_head, begin_read, [&](std::int64_t at, int stage) {
      const QueryTile<T, N, W>& tile = tiles[stage];
      const std::int64_t head = key_head * group + at / tiles_of_head, i0 = unseen + at % tiles_of_head * N;
      SumTile weights[N / 8], slopes[N / 8];
      multiply_rows<T, N, W>(keys, tile.queries, lane, weights);
      multiply_rows<T, N, W>(values, tile.grads, lane, slopes);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const std::int64_t j = own + lane / 4 + side * 8;
        // Of the tile's queries, those from here on see this key by its place.
        const std::int64_t from = call.causal ? max(std::int64_t{0}, j - call.first_query - i0) : 0;
        const int before = (j < keys_there ? static_cast<int>(min(std::int64_t{N}, from)) : N) - lane % 4 * 2;
        const int behind = static_cast<int>(min(std::int64_t{N}, call.queries - i0)) - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int r = n * 8 + lane % 4 * 2 + c;
            const bool is_seen = n * 8 + c >= before && n * 8 + c < behind;
            const float score =
                masked_score<kPlain>(call, entry, head, i0 + r, j, is_seen, weights[n].at[2 * side + c]);
            const float kept = kept_share<kPlain>(call, entry, head, i0 + r, j, is_seen);
            const float weight = exp_less<T>(score, tile.log_sums[r]);
            float& slope = slopes[n].at[2 * side + c];
            slope = weight * (slope * kept - tile.deltas[r]);
            weights[n].at[2 * side + c] = weight * kept;
          }
        }
      }
      add_weighted_rows<T, N, W>(weights, tile.grads, lane, value_sums);
      add_weighted_rows<T, N, W>(slopes, tile.queries, lane, key_sums);
    });
    if (to_key.data != nullptr) {
      write_rows<T, W>(key_sums, {call.scale, call.scale}, to_key.at(entry, key_head, own), to_key.row, count,
                       call.width, lane);
    }
    if (to_value.data != nullptr) {
      write_rows<T, W>(value_sums, {1.0F, 1.0F}, to_value.at(entry, key_head, own), to_value.row, count,
                       call.value_width, lane);
    }
  }
}

}  // namespace

void attention_backward_by_tiles(const Context& context, const AttentionRule& rule,
                                 const AttentionMasks& masks, const View& query, const View& key,
                                 const View& value, const View& output, const View& log_sums,
                                 const View& grad_output, const View& grad_query, const View& grad_key,
                                 const View& grad_value) {
  dispatch_factor(context, query.dtype, [&](auto tag) {
    using T = decltype(tag);
    using E = Element<T>;
    const Call<float> call(rule, masks, query, key, value);
    const std::int64_t queries = call.batch * call.heads * call.queries;
    const Scratch deltas(context.memory, static_cast<std::size_t>(queries) * sizeof(float));
    const Given<E> given{Heads<const E>(query),      Heads<const E>(key),
                         Heads<const E>(value),      Heads<const E>(grad_output),
                         log_sums.as<const float>(), static_cast<float*>(deltas.data())};
    DTRAIN_LAUNCH("attention_backward", context.stream, blocks_for(context, queries * kWarp), kThreads,
                  delta_kernel<E>, call, Heads<const E>(output), Heads<const E>(grad_output),
                  static_cast<float*>(deltas.data()));
    dispatch_head_width(query, value, [&](auto width) {
      constexpr int W = decltype(width)::value;
      dispatch_plain(masks, [&](auto plain) {
        constexpr bool kPlain = decltype(plain)::value;
        if (grad_query.data != nullptr) {
          DTRAIN_LAUNCH("attention_backward", context.stream,
                        blocks_of_rows(context, call.batch * call.heads, call.queries), kTileThreads,
                        (query_gradient_tile_kernel<T, W, kPlain>), call, given, Heads<E>(grad_query));
        }
        if ((grad_key.data != nullptr || grad_value.data != nullptr) && call.keys != 0) {
          DTRAIN_LAUNCH("attention_backward", context.stream,
                        blocks_of_rows(context, call.batch * call.key_heads, call.keys), kTileThreads,
                        (key_gradient_tile_kernel<T, W, kPlain>), call, given, Heads<E>(grad_key),
                        Heads<E>(grad_value));
        }
      });
    });
  });
}

}  // namespace attention
}  // namespace dtrain::cuda
