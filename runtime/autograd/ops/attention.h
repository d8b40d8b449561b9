// Attention of queries to keys (Vaswani et al. 2017).
#pragma once

#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

struct AttentionOptions {
  /// Query i sees keys 0 … i only.
  bool causal = false;
  /// Factor of the scores; 1 / √E if not given.
  std::optional<double> scale = std::nullopt;
  /// All scores are in memory at once and kept for backward, so that gradients of gradients are available.
  bool keeps_scores = false;
};

/// softmax(query · keyᵀ · scale + mask) · value: query […, L, E], key […, S, E], value […, S, F] → […, L, F];
/// the leading dimensions broadcast. `mask` is added to the scores and broadcasts to […, L, S] (-∞ hides a
/// key; where all are hidden the result is NaN, as in PyTorch), or is undefined. Query heads that share a key
/// are a dimension that broadcasts.
///
/// With more than 256 queries the scores of 128 at a time are in memory and none are kept: memory grows with
/// the context, not with its square; causal queries do not compute the scores of blocks that they do not see;
/// backward computes the scores again, and its gradients have none (UsageError), unless options.keeps_scores.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask = {}, const AttentionOptions& options = {});

}  // namespace dtrain
