#include "runtime/autograd/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/recompute.h"
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

/// Queries whose scores are in memory at once, where all are not.
constexpr std::int64_t kQueriesAtOnce = 128;
/// Up to so many queries all scores are: what they take is little, and gradients have gradients.
constexpr std::int64_t kFewQueries = 2 * kQueriesAtOnce;

/// 0 where query `first` + i may see key j, else -∞: [queries, keys]. Places are counted in float32: bf16 has
/// none between 256 and 258.
Tensor causal_mask(std::int64_t first, std::int64_t queries, std::int64_t keys, const Tensor& like) {
  const NoGrad no_grad;
  const auto range = [&](std::int64_t from, std::int64_t n) {
    return Tensor::arange(from + n, like.shared_device(), DType::f32).slice(0, from, from + n);
  };
  const auto number = [&](double value) {
    return Tensor::full({}, value, like.shared_device(), like.dtype());
  };
  const Tensor sees =
      greater_equal(range(first, queries).reshape({queries, 1}), range(0, keys)).to(DType::boolean);
  return where(sees, number(0), number(-std::numeric_limits<double>::infinity()));
}

/// softmax(query · keyᵀ + mask) · value; the queries, which are scaled already, begin with number `first` of
/// all.
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool causal,
              std::int64_t first) {
  Tensor scores = autocast_full(matmul(query, key.transpose(-2, -1)));
  if (mask.defined()) scores = add(scores, mask);
  if (causal) scores = add(scores, causal_mask(first, query.size(-2), key.size(-2), scores));
  return matmul(softmax(scores), value);
}

/// What of the mask is for these queries and the first `keys` keys; its dimensions of extent 1 broadcast.
Tensor part_of(const Tensor& mask, std::int64_t first, std::int64_t end, std::int64_t keys) {
  if (!mask.defined()) return mask;
  Tensor part = mask;
  if (part.rank() >= 2 && part.size(-2) != 1) part = part.slice(-2, first, end);
  if (part.rank() >= 1 && part.size(-1) != 1) part = part.slice(-1, 0, keys);
  return part;
}

/// attend() for a block of queries after the other, each with the keys that it sees and computed once more by
/// backward: memory grows with the context, not with its square (Rabe and Staats, "Self-attention does not
/// need O(n²) memory", 2021).
Tensor attend_by_blocks(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        bool causal) {
  const std::int64_t queries = query.size(-2), keys = key.size(-2);
  std::vector<Tensor> blocks;
  for (std::int64_t first = 0; first < queries; first += kQueriesAtOnce) {
    const std::int64_t end = std::min(first + kQueriesAtOnce, queries);
    const std::int64_t seen = causal ? std::min(end, keys) : keys;
    const auto block = [causal, first](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{attend(in[0], in[1], in[2], in[3], causal, first)};
    };
    blocks.push_back(recomputed(block,
                                {query.slice(-2, first, end), key.slice(-2, 0, seen),
                                 value.slice(-2, 0, seen), part_of(mask, first, end, seen)},
                                {})[0]);
  }
  return cat(blocks, -2);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, const AttentionOptions& options) {
  check_attention(query, key, value);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  const Tensor scaled = mul(query, scale);
  if (options.keeps_scores || query.size(-2) <= kFewQueries)
    return attend(scaled, key, value, mask, options.causal, 0);
  // Dense, in the precision of the products: every block reads them as they are.
  return attend_by_blocks(autocast_low(scaled).contiguous(), autocast_low(key).contiguous(),
                          autocast_low(value).contiguous(), mask, options.causal);
}

}  // namespace dtrain
