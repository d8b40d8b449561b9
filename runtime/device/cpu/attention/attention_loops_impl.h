// The loops of attention_loops.h (Dao et al., "FlashAttention", 2022). Included once per instruction set
// inside that set's namespace, after its target pragma, with kVectorBytes, kTileRows and kTileVectors chosen
// so that a tile of sums fits the registers.
#include "runtime/device/cpu/attention/attention_weights_impl.h"

namespace {

template <class E>
struct ForwardMemory {
  using N = typename E::Number;
  using W = typename E::Word;
  static constexpr std::int64_t kBlocks = kQueriesOfChunk / kBlock;

  ForwardMemory(const AttentionJob& job, Pieces pieces)
      : turned_step(pitch_of<E>(job.width) * kBlock),
        pitch(rounded_up(job.value_width, kLanes<E>)),
        turned(pieces.take<W>(kBlocks * turned_step)),
        staging(pieces.take<W>(turned_step)),
        keys(pieces.take<W>(kTile * rounded_up(job.width, kLanes<E>))),
        values(pieces.take<W>(kTile * pitch)),
        scores(pieces.take<N>(kTile * kBlock)),
        mask(pieces.take<N>(kTile * kBlock)),
        weights(pieces.take<W>(kTile * kBlock)),
        out(pieces.take<N>(kBlocks * kBlock * pitch)),
        running(pieces.take<Running<N>>(kBlocks)),
        bytes(pieces.bytes()) {}

  std::int64_t turned_step, pitch;
  W *turned, *staging, *keys, *values;
  N *scores, *mask;
  W* weights;
  N* out;
  Running<N>* running;
  std::size_t bytes;
};

/// A tile of keys joins a block: its sums of weighted values, and its softmax.
template <class E>
inline void attend(const AttentionJob& job, const ScoreTile& at, Words<E> keys, Words<E> values,
                   ForwardMemory<E>& memory, std::int64_t block) {
  using N = typename E::Number;
  const Words<E> turned{memory.turned + block * memory.turned_step, kBlock, 1};
  N* out = memory.out + block * kBlock * memory.pitch;
  multiply<E>(at.keys, kBlock, depth_of<E>(job.width), keys, turned, false, memory.scores, kBlock);
  score(job, at, memory.scores);
  N shrink[kBlock];
  if (weigh(at.keys, memory.scores, memory.running[block], shrink)) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      for (std::int64_t c = 0; c < memory.pitch; ++c) out[i * memory.pitch + c] *= shrink[i];
    }
  }
  if (job.keep_share < 1) {
    drop(job, at, memory.mask);
    for (std::int64_t i = 0; i < at.keys * kBlock; ++i) memory.scores[i] *= memory.mask[i];
  }
  multiply<E>(kBlock, memory.pitch, depth_of<E>(at.keys),
              over_keys<E>(at.keys, memory.scores, memory.weights), values, true, out, memory.pitch);
}

template <class E, class T>
inline void finish(const AttentionJob& job, const ScoreTile& at, const ForwardMemory<E>& memory,
                   std::int64_t block) {
  using N = typename E::Number;
  const Running<N>& running = memory.running[block];
  N* log_sums = static_cast<N*>(job.log_sums) + (at.entry * job.heads + at.head) * job.queries + at.query;
  for (std::int64_t i = 0; i < at.queries; ++i) {
    // Without any key the result is 0; where the bias hides all it is NaN.
    const bool sees_none = running.sum[i] == 0 && job.bias.data == nullptr;
    const N sum = sees_none ? N{1} : running.sum[i];
    log_sums[i] = sees_none ? -kHidden<N> : running.top[i] + logarithm(sum);
    const N* from = memory.out + (block * kBlock + i) * memory.pitch;
    T* to = static_cast<T*>(job.output.data) + job.output.offset(at.entry, at.head, at.query + i);
    for (std::int64_t c = 0; c < job.value_width; ++c) narrow(from[c] / sum, to + c);
  }
}

template <class E, class T>
__attribute__((flatten)) void forward(const AttentionJob& job, std::int64_t entry, std::int64_t head,
                                      std::int64_t part, std::byte* scratch) {
  using N = typename E::Number;
  ForwardMemory<E> memory(job, Pieces(scratch));
  const std::int64_t first = part * kQueriesOfChunk, end = least(job.queries, first + kQueriesOfChunk);
  const std::int64_t blocks = (end - first + kBlock - 1) / kBlock, keys = job.keys_of(entry);
  const std::int64_t key_head = head / (job.heads / job.key_heads);
  const auto score_tile = [&](std::int64_t block, std::int64_t key) {
    const std::int64_t query = first + block * kBlock;
    return ScoreTile{entry, head, query, least(kBlock, end - query), key, least(kTile, keys - key)};
  };
  for (std::int64_t block = 0; block < blocks; ++block) {
    const ScoreTile at = score_tile(block, 0);
    turn<E>(source<T>(job.query, entry, head, at.query, at.queries, job.width), memory.staging,
            memory.turned + block * memory.turned_step);
    for (std::int64_t i = 0; i < kBlock; ++i) {
      memory.running[block].top[i] = kHidden<N>;
      memory.running[block].sum[i] = 0;
    }
  }
  for (std::int64_t i = 0; i < blocks * kBlock * memory.pitch; ++i) memory.out[i] = 0;
  const std::int64_t seen = job.causal ? least(keys, job.first_query + end) : keys;
  for (std::int64_t key = 0; key < seen; key += kTile) {
    const std::int64_t count = least(kTile, keys - key);
    const auto left = as_left<E>(source<T>(job.key, entry, key_head, key, count, job.width), memory.keys);
    const auto right =
        as_right<E>(source<T>(job.value, entry, key_head, key, count, job.value_width), memory.values);
    for (std::int64_t block = 0; block < blocks; ++block) {
      ScoreTile at = score_tile(block, key);
      leave_out_unseen(job, at);
      if (at.keys > 0) attend<E>(job, at, left, right, memory, block);
    }
  }
  for (std::int64_t block = 0; block < blocks; ++block)
    finish<E, T>(job, score_tile(block, 0), memory, block);
}

template <class E>
struct BackwardMemory {
  using N = typename E::Number;
  using W = typename E::Word;

  BackwardMemory(const AttentionJob& job, Pieces pieces)
      : pitch(rounded_up(job.width, kLanes<E>)),
        value_pitch(rounded_up(job.value_width, kLanes<E>)),
        rows(rounded_up(job.queries, kBlock)),
        query_turned(pieces.take<W>(pitch * kBlock)),
        grad_turned(pieces.take<W>(value_pitch * kBlock)),
        staging(pieces.take<W>(most(pitch, value_pitch) * kBlock)),
        query_right(pieces.take<W>(pitch * kBlock)),
        grad_right(pieces.take<W>(value_pitch * kBlock)),
        key_left(pieces.take<W>(kTile * pitch)),
        key_right(pieces.take<W>(kTile * pitch)),
        value_left(pieces.take<W>(kTile * value_pitch)),
        weights(pieces.take<N>(kTile * kBlock)),
        slopes(pieces.take<N>(kTile * kBlock)),
        mask(pieces.take<N>(kTile * kBlock)),
        packed(pieces.take<W>(kTile * kBlock)),
        grad_key(pieces.take<N>(kTile * pitch)),
        grad_value(pieces.take<N>(kTile * value_pitch)),
        log_sums(pieces.take<N>(job.heads / job.key_heads * rows)),
        deltas(pieces.take<N>(job.heads / job.key_heads * rows)),
        bytes(pieces.bytes()) {}

  std::int64_t pitch, value_pitch, rows;
  W *query_turned, *grad_turned, *staging, *query_right, *grad_right, *key_left, *key_right, *value_left;
  N *weights, *slopes, *mask;
  W* packed;
  N *grad_key, *grad_value;
  N *log_sums, *deltas;  ///< [heads of the key head][rows]
  std::size_t bytes;
};

/// Of each query of a head: the sum of its gradients times its results, and its log-sum; +∞ behind the last,
/// so that its weights are 0.
template <class E, class T>
inline void take_rows(const AttentionJob& job, std::int64_t entry, std::int64_t head,
                      typename E::Number* log_sums, typename E::Number* deltas, std::int64_t rows) {
  using N = typename E::Number;
  const Source<T> out = source<T>(job.output, entry, head, 0, job.queries, job.value_width);
  const Source<T> grad = source<T>(job.grad_output, entry, head, 0, job.queries, job.value_width);
  const N* given = static_cast<const N*>(job.log_sums) + (entry * job.heads + head) * job.queries;
  for (std::int64_t i = 0; i < rows; ++i) {
    N lanes[kLanes<E>] = {};
    std::int64_t c = 0;
    const bool is_query = i < job.queries;
    const T *a = out.data + i * out.row, *b = grad.data + i * grad.row;
    for (; is_query && c + kLanes<E> <= job.value_width; c += kLanes<E>) {
      for (std::int64_t lane = 0; lane < kLanes<E>; ++lane) {
        lanes[lane] += widened(a[c + lane]) * widened(b[c + lane]);
      }
    }
    for (std::int64_t lane = 0; is_query && c < job.value_width; ++c, ++lane) {
      lanes[lane] += widened(a[c]) * widened(b[c]);
    }
    N sum = 0;
    for (const N lane : lanes) sum += lane;
    deltas[i] = sum;
    log_sums[i] = is_query ? given[i] : -kHidden<N>;
  }
}

/// A tile of keys and its values as operands.
template <class E>
struct KeyTile {
  Words<E> left, right, value_left;
};

/// A block's log-sums and deltas.
template <class N>
struct QueryNumbers {
  const N *log_sums, *deltas;
};

/// Products [keys][kBlock] of keys and queries become weights, those of values and gradients of results the
/// slopes of the scores.
template <class N>
inline void weigh_again(const AttentionJob& job, const ScoreTile& at, const QueryNumbers<N>& numbers, N* mask,
                        N* weights, N* slopes) {
  score(job, at, weights);
  const bool drops = job.keep_share < 1;
  if (drops) drop(job, at, mask);
  for (std::int64_t k = 0; k < at.keys; ++k) {
    N *weight = weights + k * kBlock, *slope = slopes + k * kBlock;
    if (drops) {
      const N* factor = mask + k * kBlock;
      for (std::int64_t i = 0; i < kBlock; ++i) {
        const N whole = exponential(weight[i] - numbers.log_sums[i]);
        slope[i] = whole * (slope[i] * factor[i] - numbers.deltas[i]);
        weight[i] = whole * factor[i];
      }
    } else {
      for (std::int64_t i = 0; i < kBlock; ++i) {
        weight[i] = exponential(weight[i] - numbers.log_sums[i]);
        slope[i] = weight[i] * (slope[i] - numbers.deltas[i]);
      }
    }
  }
}

/// What a block of queries adds to the gradients of a tile of keys, and the tile to the block's.
template <class E, class T>
inline void return_gradients(const AttentionJob& job, const ScoreTile& at, const KeyTile<E>& tile,
                             const QueryNumbers<typename E::Number>& numbers, BackwardMemory<E>& memory,
                             typename E::Number* grad_query) {
  const Source<T> query = source<T>(job.query, at.entry, at.head, at.query, at.queries, job.width);
  const Source<T> grad = source<T>(job.grad_output, at.entry, at.head, at.query, at.queries, job.value_width);
  turn<E>(query, memory.staging, memory.query_turned);
  turn<E>(grad, memory.staging, memory.grad_turned);
  auto *weights = memory.weights, *slopes = memory.slopes;
  multiply<E>(at.keys, kBlock, depth_of<E>(job.width), tile.left, {memory.query_turned, kBlock, 1}, false,
              weights, kBlock);
  multiply<E>(at.keys, kBlock, depth_of<E>(job.value_width), tile.value_left, {memory.grad_turned, kBlock, 1},
              false, slopes, kBlock);
  weigh_again(job, at, numbers, memory.mask, weights, slopes);
  const std::int64_t depth = depth_of<E>(at.queries);
  multiply<E>(at.keys, memory.value_pitch, depth, over_queries<E>(at.keys, weights, memory.packed),
              as_right<E>(grad, memory.grad_right), true, memory.grad_value, memory.value_pitch);
  multiply<E>(at.keys, memory.pitch, depth, over_queries<E>(at.keys, slopes, memory.packed),
              as_right<E>(query, memory.query_right), true, memory.grad_key, memory.pitch);
  multiply<E>(kBlock, memory.pitch, depth_of<E>(at.keys), over_keys<E>(at.keys, slopes, memory.packed),
              tile.right, true, grad_query, memory.pitch);
}

template <class N, class T>
inline void write_rows(const AttentionArray& array, std::int64_t entry, std::int64_t head, std::int64_t first,
                       std::int64_t rows, std::int64_t columns, const N* from, std::int64_t pitch, N scale) {
  if (array.data == nullptr) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    T* to = static_cast<T*>(array.data) + array.offset(entry, head, first + r);
    for (std::int64_t c = 0; c < columns; ++c) narrow(from[r * pitch + c] * scale, to + c);
  }
}

template <class E, class T>
__attribute__((flatten)) void backward(const AttentionJob& job, std::int64_t entry, std::int64_t key_head,
                                       std::int64_t stripe, std::byte* scratch) {
  using N = typename E::Number;
  BackwardMemory<E> memory(job, Pieces(scratch));
  const std::int64_t group = job.heads / job.key_heads, first_head = key_head * group;
  N* grad_queries = static_cast<N*>(job.grad_queries) + stripe * job.stripe_step +
                    (entry * job.heads + first_head) * memory.rows * memory.pitch;
  for (std::int64_t i = 0; i < group * memory.rows * memory.pitch; ++i) grad_queries[i] = 0;
  for (std::int64_t h = 0; h < group; ++h) {
    take_rows<E, T>(job, entry, first_head + h, memory.log_sums + h * memory.rows,
                    memory.deltas + h * memory.rows, memory.rows);
  }
  const std::int64_t keys = job.keys_of(entry);
  const std::int64_t end = least(job.keys, (stripe + 1) * job.keys_of_stripe);
  for (std::int64_t key = stripe * job.keys_of_stripe; key < end; key += kTile) {
    const std::int64_t all = least(kTile, end - key), seen = most(0, least(all, keys - key));
    const Source<T> from = source<T>(job.key, entry, key_head, key, seen, job.width);
    const KeyTile<E> tile{
        as_left<E>(from, memory.key_left), as_right<E>(from, memory.key_right),
        as_left<E>(source<T>(job.value, entry, key_head, key, seen, job.value_width), memory.value_left)};
    for (std::int64_t i = 0; i < all * memory.pitch; ++i) memory.grad_key[i] = 0;
    for (std::int64_t i = 0; i < all * memory.value_pitch; ++i) memory.grad_value[i] = 0;
    for (std::int64_t h = 0; seen > 0 && h < group; ++h) {
      for (std::int64_t query = 0; query < job.queries; query += kBlock) {
        ScoreTile at{entry, first_head + h, query, least(kBlock, job.queries - query), key, seen};
        leave_out_unseen(job, at);
        if (at.keys == 0) continue;
        const std::int64_t row = h * memory.rows + query;
        return_gradients<E, T>(job, at, tile, {memory.log_sums + row, memory.deltas + row}, memory,
                               grad_queries + row * memory.pitch);
      }
    }
    write_rows<N, T>(job.grad_key, entry, key_head, key, all, job.width, memory.grad_key, memory.pitch,
                     static_cast<N>(job.scale));
    write_rows<N, T>(job.grad_value, entry, key_head, key, all, job.value_width, memory.grad_value,
                     memory.value_pitch, N{1});
  }
}

template <class E>
std::size_t scratch_bytes(const AttentionJob& job) {
  const std::size_t forward = ForwardMemory<E>(job, Pieces(nullptr)).bytes;
  return job.grad_output.data == nullptr ? forward : BackwardMemory<E>(job, Pieces(nullptr)).bytes;
}

template <class E, class T>
inline constexpr AttentionLoops kLoopsOf{kLanes<E>, scratch_bytes<E>, forward<E, T>, backward<E, T>};

}  // namespace
