#include "runtime/nn/attention.h"

#include <limits>
#include <string>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"

namespace dtrain {
namespace {

/// Each [B, kv_heads, heads / kv_heads, L, E], the third dimension of keys and values being 1; where every
/// query has a key of its own, without that dimension.
struct Heads {
  Tensor query, key, value;
};

Heads heads_of(const Tensor& fused, const HeadShape& shape) {
  const std::int64_t batch = fused.size(0), length = fused.size(1), group = shape.heads / shape.kv_heads;
  const Tensor parts = fused.reshape({batch, length, shape.kv_heads, group + 2, shape.head_width});
  const auto one = [&](std::int64_t which) { return parts.select(3, which).transpose(1, 2); };
  if (group == 1) return {one(0), one(1), one(2)};
  return {parts.slice(3, 0, group).permute({0, 2, 3, 1, 4}), one(group).unsqueeze(2),
          one(group + 1).unsqueeze(2)};
}

Tensor placed(const Tensor& heads, const AttentionContext& context) {
  if (context.rotary == nullptr) return heads;
  if (context.documents.defined()) return (*context.rotary)(heads, positions_in(context.documents));
  return context.positions.defined() ? (*context.rotary)(heads, context.positions) : (*context.rotary)(heads);
}

/// Writes new keys or values [B, kv_heads, L, E] to where each row's tokens are.
void remember(Tensor& kept, const Tensor& fresh, const std::vector<std::int64_t>& positions) {
  const std::int64_t length = fresh.size(2);
  for (std::int64_t row = 0; row < fresh.size(0); ++row) {
    const std::int64_t first = positions.empty() ? 0 : positions[static_cast<std::size_t>(row * length)];
    kept.select(0, row).slice(1, first, first + length).copy_from(fresh.select(0, row));
  }
}

/// 0 where a token at `positions` [B, L] may see one of the first `keys`, else -∞: [B, 1, L, keys].
Tensor visible(const std::vector<std::int64_t>& positions, std::int64_t batch, std::int64_t keys,
               const std::shared_ptr<Device>& device) {
  std::vector<float> mask;
  for (const std::int64_t position : positions) {
    for (std::int64_t key = 0; key < keys; ++key)
      mask.push_back(key <= position ? 0.0F : -std::numeric_limits<float>::infinity());
  }
  const auto length = static_cast<std::int64_t>(positions.size()) / batch;
  return Tensor::from_data(mask, {batch, 1, length, keys}, device);
}

/// Attention to what the cache has, this call's tokens included.
Tensor attend_cached(Heads heads, const HeadShape& shape, const AttentionContext& context) {
  KeyValueCache& cache = *context.cache;
  const std::int64_t batch = heads.query.size(0), group = shape.heads / shape.kv_heads;
  const auto own = [&](const Tensor& x) { return group == 1 ? x : x.squeeze(2); };
  std::vector<std::int64_t> positions;
  if (context.positions.defined()) positions = context.positions.to_vector<std::int64_t>();
  remember(cache.keys, own(heads.key), positions);
  remember(cache.values, own(heads.value), positions);
  if (positions.empty()) {  // nothing was before
    return scaled_dot_product_attention(heads.query, heads.key, heads.value, {}, {.causal = true});
  }
  std::int64_t keys = 0;
  for (const std::int64_t position : positions) keys = std::max(keys, position + 1);
  Tensor mask = visible(positions, batch, keys, heads.query.shared_device());
  Tensor key = cache.keys.slice(2, 0, keys), value = cache.values.slice(2, 0, keys);
  if (group > 1) {
    mask = mask.unsqueeze(1);
    key = key.unsqueeze(2);
    value = value.unsqueeze(2);
  }
  return scaled_dot_product_attention(heads.query, key, value, mask);
}

HeadShape checked(std::int64_t width, std::int64_t heads, const SelfAttentionOptions& options) {
  const HeadShape shape{
      heads, options.kv_heads > 0 ? options.kv_heads : heads,
      options.head_width > 0 ? options.head_width : width / std::max<std::int64_t>(heads, 1)};
  const bool divides = options.head_width > 0 || (heads > 0 && width % heads == 0);
  if (heads > 0 && width > 0 && divides && shape.head_width > 0 && shape.heads % shape.kv_heads == 0)
    return shape;
  throw UsageError(
      "SelfAttention: expected heads that divide the width, and keys that divide the heads, got " +
      std::to_string(heads) + " heads, " + std::to_string(shape.kv_heads) + " keys and a width of " +
      std::to_string(width));
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t batch, std::int64_t capacity, const HeadShape& shape,
                             const std::shared_ptr<Device>& device, DType dtype)
    : keys(Tensor::zeros({batch, shape.kv_heads, capacity, shape.head_width}, device, dtype)),
      values(Tensor::zeros({batch, shape.kv_heads, capacity, shape.head_width}, device, dtype)) {}

Tensor positions_in(const Tensor& documents) {
  if (documents.rank() != 2 || documents.dtype() != DType::i32)
    throw UsageError("positions_in: expected documents int32 [B, L], got " + documents.describe());
  const Tensor places =
      Tensor::arange(0, static_cast<double>(documents.size(1)), 1, documents.shared_device());
  return sub(places, documents.to(DType::i64));
}

Tensor attend_heads(const Tensor& fused, const HeadShape& shape, const AttentionContext& context) {
  if (fused.rank() != 3 || fused.size(2) != shape.fused_width()) {
    throw UsageError("attend_heads: expected [B, L, " + std::to_string(shape.fused_width()) + "], got " +
                     fused.describe());
  }
  if (context.rotary == nullptr && context.cache == nullptr && !context.mask.defined()) {
    return packed_attention(fused, {.heads = shape.heads, .key_heads = shape.kv_heads, .by_group = true},
                            {.causal = context.causal, .segments = context.documents});
  }
  if (context.documents.defined() && context.cache != nullptr)
    throw UsageError("attend_heads: expected documents or a cache, got both");
  Heads heads = heads_of(fused, shape);
  heads.query = placed(heads.query, context);
  heads.key = placed(heads.key, context);
  const bool shares = shape.heads != shape.kv_heads;
  const auto attended = [&] {
    if (context.cache != nullptr) return attend_cached(heads, shape, context);
    Tensor mask = context.mask;
    if (shares && mask.defined() && mask.rank() == 4) {  // [B, heads or 1, L, S] beside the groups
      mask = mask.size(1) == 1 ? mask.unsqueeze(1)
                               : mask.reshape({mask.size(0), shape.kv_heads, -1, mask.size(2), mask.size(3)});
    }
    return scaled_dot_product_attention(heads.query, heads.key, heads.value, mask,
                                        {.causal = context.causal, .segments = context.documents});
  };
  const Tensor seen = shares ? attended().permute({0, 3, 1, 2, 4}) : attended().transpose(1, 2);
  return seen.reshape({fused.size(0), fused.size(1), shape.heads * shape.head_width});
}

SelfAttention::SelfAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                             const std::shared_ptr<Device>& device, SelfAttentionOptions options)
    : options_(std::move(options)),
      shape_(checked(width, heads, options_)),
      qkv_(add_module("qkv", std::make_shared<Linear>(width, shape_.fused_width(), generator, device,
                                                      LinearOptions{.bias = options_.qkv_bias}))),
      proj_(add_module("proj", std::make_shared<Linear>(heads * shape_.head_width, width, generator, device,
                                                        LinearOptions{.bias = options_.bias}))) {}

Tensors SelfAttention::forward_all(const Tensors& inputs) {
  check_inputs("SelfAttention", inputs, 1, 3);
  const AttentionContext context{.causal = options_.causal,
                                 .rotary = options_.rotary ? &*options_.rotary : nullptr,
                                 .mask = inputs.size() > 1 ? inputs[1] : Tensor(),
                                 .documents = inputs.size() > 2 ? inputs[2] : Tensor()};
  return {(*proj_)(attend_heads((*qkv_)(inputs[0]), shape_, context))};
}

}  // namespace dtrain
