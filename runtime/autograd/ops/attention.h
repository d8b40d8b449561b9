// Attention of queries to keys (Vaswani et al. 2017). Scores are never in memory but in small tiles, forward
// and backward: memory grows with the context, not with its square.
//
//     // 32 query heads that share 8 heads of keys and values, several documents packed in each row:
//     const Tensor seen = scaled_dot_product_attention(q, k, v, {}, {.causal = true, .segments = documents});
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Dropout of attention's weights: which draws of a network's DropoutKey it takes. AttentionDropout
/// (runtime/nn/dropout.h) makes it.
struct DroppedWeights {
  double probability = 0;
  std::uint64_t seed = 0, layer = 0;
  Tensor step;            ///< i64 [1]
  Tensor rows = {};       ///< i64 [B]: the samples; undefined: 0, 1, …
  std::int64_t part = 0;  ///< heads that are split among ranks: which part comes here, from 0
};

struct AttentionOptions {
  /// Query i sees keys 0 … first_query + i only.
  bool causal = false;
  /// Factor of the scores; 1 / √E if not given.
  std::optional<double> scale = std::nullopt;
  /// All scores are in memory at once, and kept for backward: for comparisons.
  bool keeps_scores = false;
  /// Place of query 0 among the keys: how many are in a cache already.
  std::int64_t first_query = 0;
  /// i64 [B]: keys from lengths[b] on are hidden from batch entry b; undefined: none. B is the product of the
  /// dimensions before the heads.
  Tensor lengths = {};
  /// i32 [B, S], the document (or other segment) of each key, equal numbers for equal documents: a query sees
  /// only keys of the document at its own place. Undefined: all.
  Tensor segments = {};
  std::optional<DroppedWeights> dropout = std::nullopt;
};

/// softmax(query · keyᵀ · scale + mask) · value: query […, H, L, E], key […, G, S, E], value […, G, S, F] →
/// […, H, L, F]. The dimensions before the heads broadcast; H is a multiple of G, and H / G neighbouring
/// query heads share a key head, or groups are a dimension of their own: query […, G, R, L, E] beside key […,
/// G, 1, S, E]. Without dimensions for heads (two or three in all) there is one. `mask` is added to the
/// scores and broadcasts to […, H, L, S] (-∞ hides a key; where all are hidden the result is NaN, as in
/// PyTorch), or is undefined. A query that sees no key because of lengths and segments gives 0.
///
/// The result lies in memory as […, L, H, F]: transposing it back costs nothing. Backward computes the scores
/// again, tile by tile. With more than 128 elements a head, where the mask requires a gradient, and for
/// gradients of gradients, the scores are in memory.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask = {}, const AttentionOptions& options = {});

/// How a row of a linear layer's output is made of heads.
struct PackedHeads {
  std::int64_t heads = 1;
  std::int64_t key_heads = 0;  ///< 0: as many as heads
  /// False: all queries, then all keys, then all values. True: the queries that share a key, that key, its
  /// value; then those of the next key.
  bool by_group = false;
};

/// The same of queries, keys and values that lie side by side: qkv [B, L, (heads + 2 · key_heads) · E] →
/// [B, L, heads · E]. Gradients are written to where they belong: nothing is copied.
Tensor packed_attention(const Tensor& qkv, const PackedHeads& heads, const AttentionOptions& options = {});

}  // namespace dtrain
