// From products of queries and keys to weights: scale, bias, who sees whom, softmax, dropout. Included by
// attention_loops_impl.h.
#include "runtime/device/cpu/attention/attention_tiles_impl.h"

namespace {

constexpr std::int64_t kBlock = kQueriesOfBlock, kTile = kKeysOfTile;

template <class N>
inline constexpr N kHidden = -static_cast<N>(__builtin_inf());

inline float exponential(float x) { return math::fast_exp(x); }
inline double exponential(double x) { return __builtin_exp(x); }
inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

/// A block of queries and the tile of keys that it is multiplied with.
struct ScoreTile {
  std::int64_t entry, head;
  std::int64_t query, queries;  ///< the first one and how many there are, at most kBlock
  std::int64_t key, keys;       ///< at most kTile
};

template <class T>
inline Source<T> source(const AttentionArray& array, std::int64_t entry, std::int64_t head,
                        std::int64_t first, std::int64_t rows, std::int64_t columns) {
  return {static_cast<const T*>(array.data) + array.offset(entry, head, first), array.row, rows, columns};
}

struct Span {
  std::int32_t low, high;
};
inline Span span_of(const std::int32_t* ids, std::int64_t count) {
  Span span{ids[0], ids[0]};
  for (std::int64_t i = 1; i < count; ++i) {
    span.low = ids[i] < span.low ? ids[i] : span.low;
    span.high = ids[i] > span.high ? ids[i] : span.high;
  }
  return span;
}

/// Leaves out the keys behind the last one that these queries see; `keys` becomes 0 where they see none.
inline void leave_out_unseen(const AttentionJob& job, ScoreTile& at) {
  if (job.causal) {
    at.keys = least(at.keys, most(0, job.first_query + at.query + at.queries - at.key));
  }
  if (job.segments == nullptr || at.keys == 0) return;
  const std::int32_t* ids = job.segments + at.entry * job.keys;
  const Span queries = span_of(ids + job.first_query + at.query, at.queries);
  const Span keys = span_of(ids + at.key, at.keys);
  if (keys.low > queries.high || queries.low > keys.high) at.keys = 0;
}

/// Scores [keys][kBlock] of products: scaled, with the bias, -∞ where a query does not see a key.
template <class N>
inline void score(const AttentionJob& job, const ScoreTile& at, N* scores) {
  const auto scale = static_cast<N>(job.scale);
  const N* bias = job.bias.data == nullptr
                      ? nullptr
                      : static_cast<const N*>(job.bias.data) + job.bias.offset(at.entry, at.head, at.query) +
                            at.key * job.bias_column;
  std::int32_t own[kBlock] = {};
  const std::int32_t* ids = job.segments == nullptr ? nullptr : job.segments + at.entry * job.keys;
  for (std::int64_t i = 0; ids != nullptr && i < at.queries; ++i)
    own[i] = ids[job.first_query + at.query + i];
  for (std::int64_t k = 0; k < at.keys; ++k) {
    N* row = scores + k * kBlock;
    for (std::int64_t i = 0; i < kBlock; ++i) row[i] *= scale;
    if (bias != nullptr) {
      for (std::int64_t i = 0; i < at.queries; ++i) row[i] += bias[i * job.bias.row + k * job.bias_column];
    }
    const std::int64_t ahead = at.key + k - job.first_query - at.query;  // queries before it do not see it
    if (job.causal && ahead > 0) {
      const auto gap = static_cast<std::int32_t>(ahead);
      for (std::int32_t i = 0; i < kBlock; ++i) row[i] = i < gap ? kHidden<N> : row[i];
    }
    if (ids != nullptr) {
      const std::int32_t id = ids[at.key + k];
      for (std::int64_t i = 0; i < kBlock; ++i) row[i] = own[i] == id ? row[i] : kHidden<N>;
    }
  }
}

/// What dropout multiplies weights [keys][kBlock] by: what the kernel dropout_mask writes at those places of
/// [batch, heads, queries, keys rounded up to 4].
template <class N>
inline void drop(const AttentionJob& job, const ScoreTile& at, N* mask) {
  const std::int32_t limit = cpu::limit_of(job.keep_share);
  const N kept = static_cast<N>(1.0 / job.keep_share);
  const std::int64_t pitch = rounded_up(job.keys, 4);
  const auto row = static_cast<std::uint64_t>(job.mask_rows == nullptr ? at.entry : job.mask_rows[at.entry]);
  const std::int64_t first = job.mask_first + (at.head * job.queries + at.query) * pitch + at.key;
  for (std::int64_t k = 0; k < at.keys; k += 4) {
    const cpu::Draws<kBlock> draws(job.mask_key, static_cast<std::uint64_t>(first + k) / 4,
                                   static_cast<std::uint64_t>(pitch) / 4, row);
    for (int next = 0; next < 4; ++next) {
      N* to = mask + (k + next) * kBlock;
      DTRAIN_INDEPENDENT
      for (std::int64_t i = 0; i < kBlock; ++i)
        to[i] = cpu::is_below_limit(draws.words[next][i], limit) ? kept : N{0};
    }
  }
}

/// A block's softmax so far.
template <class N>
struct Running {
  N top[kBlock], sum[kBlock];
};

/// Scores become weights, e^(score - top). `shrink` is what earlier weights are to be multiplied by; returns
/// whether that changes any.
template <class N>
inline bool weigh(std::int64_t keys, N* scores, Running<N>& running, N* shrink) {
  N top[kBlock], sum[kBlock] = {};
  for (std::int64_t i = 0; i < kBlock; ++i) top[i] = running.top[i];
  for (std::int64_t k = 0; k < keys; ++k) {
    const N* row = scores + k * kBlock;
    for (std::int64_t i = 0; i < kBlock; ++i) top[i] = row[i] > top[i] ? row[i] : top[i];
  }
  int changed = 0;
  N base[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) {
    base[i] = top[i] == kHidden<N> ? N{0} : top[i];
    changed |= top[i] != running.top[i] ? 1 : 0;
    shrink[i] = exponential(running.top[i] - base[i]);
    running.top[i] = top[i];
  }
  for (std::int64_t k = 0; k < keys; ++k) {
    N* row = scores + k * kBlock;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      row[i] = exponential(row[i] - base[i]);
      sum[i] += row[i];
    }
  }
  for (std::int64_t i = 0; i < kBlock; ++i) running.sum[i] = running.sum[i] * shrink[i] + sum[i];
  return changed != 0;
}

/// Weights [keys][kBlock] as a left operand for rows of queries: its depth are the keys.
template <class E>
inline Words<E> over_keys(std::int64_t keys, typename E::Number* weights, typename E::Word* memory) {
  if constexpr (E::kPack == 1) {
    return {weights, 1, kBlock};
  } else {
    if (keys % 2 != 0) {
      for (std::int64_t i = 0; i < kBlock; ++i) weights[keys * kBlock + i] = 0;
    }
    for (std::int64_t k = 0; k < keys; k += 2) {
      for (std::int64_t i = 0; i < kBlock; i += kLanes<E>) {
        E::join_rows(weights + k * kBlock + i, weights + (k + 1) * kBlock + i, memory + k / 2 * kBlock + i);
      }
    }
    return {memory, 1, kBlock};
  }
}

/// And one for rows of keys: its depth are the queries.
template <class E>
inline Words<E> over_queries(std::int64_t keys, const typename E::Number* weights, typename E::Word* memory) {
  if constexpr (E::kPack == 1) {
    return {weights, kBlock, 1};
  } else {
    for (std::int64_t i = 0; i < keys * kBlock; i += 2 * kLanes<E>) E::round(weights + i, memory + i / 2);
    return {memory, kBlock / 2, 1};
  }
}

template <class E>
inline std::int64_t depth_of(std::int64_t elements) {
  return (elements + E::kPack - 1) / E::kPack;
}

/// Words of a row of `columns` elements, in whole vectors.
template <class E>
inline std::int64_t pitch_of(std::int64_t columns) {
  return rounded_up(depth_of<E>(columns), kLanes<E>);
}

}  // namespace
