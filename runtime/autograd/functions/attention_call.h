// One attention as its kernel takes it — queries [B, G, R, L, E], keys [B, G, S, E], values [B, G, S, F] —,
// and the same by differentiable operations, with all scores in memory.
#pragma once

#include "runtime/autograd/ops/attention.h"
#include "runtime/device/kernels.h"

namespace dtrain {

struct AttentionCall {
  AttentionRule rule;
  Tensor bias;               ///< [B, G, R, L, S], float32 (float64 of float64), or undefined
  Tensor lengths, segments;  ///< as in AttentionOptions
  std::optional<DroppedWeights> dropout;

  /// Borrows the tensors.
  AttentionMasks masks(const Tensor& query, const Tensor& key) const;
};

/// softmax of the scores, [B, G, R, L, S], without dropout.
Tensor attention_weights(const AttentionCall& call, const Tensor& query, const Tensor& key);
/// What dropout multiplies them by; undefined without.
Tensor attention_dropout(const AttentionCall& call, const Tensor& query, const Tensor& key);
/// [B, G, R, L, F]
Tensor plain_attention(const AttentionCall& call, const Tensor& query, const Tensor& key,
                       const Tensor& value);
/// Gradients of query, key and value by differentiable operations.
Tensors plain_attention_gradients(const AttentionCall& call, const Tensor& query, const Tensor& key,
                                  const Tensor& value, const Tensor& grad);

}  // namespace dtrain
