// The loss of a layer that gives a large vocabulary's logits, which are never in memory at once.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/autograd/ops.h"

namespace dtrain {

struct LinearCrossEntropyOptions {
  LossReduction reduction = LossReduction::mean;  ///< or sum
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Rows whose logits are in memory at once; 0: as many as take 64 MiB, on a GPU 256.
  std::int64_t rows_at_once = 0;
};

/// cross_entropy(linear(x, weight, {}), target), the same numbers but for the order of sums: x [N, K], weight
/// [V, K], target i64 [N], of which rows equal to `ignore_index` are left out. Logits are float32 whatever
/// the precision. Where gradients are recorded, those of x and weight are computed along with the loss, and
/// backward only scales them: three products in all, as without fusion, and memory for one more gradient of
/// the weight until backward. Worth it where N · V is large. The gradients have none of their own.
///
///     const Tensor loss = linear_cross_entropy(features.reshape({-1, width}), words, next_tokens);
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace dtrain
