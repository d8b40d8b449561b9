#include "runtime/autograd/ops/attention.h"

#include <cmath>
#include <limits>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  if (query.rank() >= 2 && key.rank() >= 2 && value.rank() >= 2 && query.size(-1) == key.size(-1) &&
      key.size(-2) == value.size(-2) && query.size(-1) > 0) {
    return;
  }
  throw UsageError(
      "scaled_dot_product_attention: expected query […, L, E], key […, S, E] and value […, S, F], got " +
      query.describe() + ", " + key.describe() + " and " + value.describe());
}

/// 0 where query i may see key j, else -∞: [L, S]. Places are counted in float32: bf16 has none between 256
/// and 258.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  const NoGrad no_grad;
  const auto range = [&](std::int64_t n) { return Tensor::arange(n, like.shared_device(), DType::f32); };
  const auto number = [&](double value) {
    return Tensor::full({}, value, like.shared_device(), like.dtype());
  };
  const Tensor sees = greater_equal(range(queries).reshape({queries, 1}), range(keys)).to(DType::boolean);
  return where(sees, number(0), number(-std::numeric_limits<double>::infinity()));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, const AttentionOptions& options) {
  check_attention(query, key, value);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  Tensor scores = autocast_full(matmul(mul(query, scale), key.transpose(-2, -1)));
  if (mask.defined()) scores = add(scores, mask);
  if (options.causal) scores = add(scores, causal_mask(query.size(-2), key.size(-2), scores));
  return matmul(softmax(scores), value);
}

}  // namespace dtrain
