#include "models/text/transformer_block.h"

#include <cmath>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/activations.h"

namespace dtrain {
namespace {

HeadShape share_of(HeadShape shape, int ranks) {
  shape.heads /= ranks;
  shape.kv_heads /= ranks;
  return shape;
}

/// GPT-2 scales what is added to the path around by the number of such sums.
double deviation_of_sums(const TransformerShape& shape) {
  if (shape.family != TransformerFamily::gpt2) return shape.initial_deviation;
  return shape.initial_deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerLayers& layers, const std::string& label)
    : heads_(share_of(layers.shape().head_shape(), layers.ranks())),
      kind_(layers.shape().feed_forward),
      norm_first_(layers.shape().family != TransformerFamily::bert),
      causal_(layers.shape().family != TransformerFamily::bert) {
  const TransformerShape& shape = layers.shape();
  const HeadShape heads = shape.head_shape();
  const std::int64_t width = shape.width, inner = shape.inner_width();
  const double last = deviation_of_sums(shape);
  if (layers.rotary() != nullptr) rotary_ = *layers.rotary();
  norm1_ = add_module("norm1", layers.norm(label + " norm1"));
  qkv_ = add_module("qkv", layers.columns(width, heads.fused_width(), label + " qkv", shape.qkv_bias));
  proj_ = add_module(
      "proj", layers.rows(heads.heads * heads.head_width, width, label + " proj", shape.proj_bias, last));
  norm2_ = add_module("norm2", layers.norm(label + " norm2"));
  if (kind_ == FeedForward::swiglu)
    gate_ = add_module("gate", layers.columns(width, inner, label + " gate", shape.inner_bias));
  up_ = add_module("up", layers.columns(width, inner, label + " up", shape.inner_bias));
  down_ = add_module("down", layers.rows(inner, width, label + " down", shape.inner_bias, last));
  attention_dropout_ = layers.dropout();
  wide_dropout_ = layers.dropout();
  if (attention_dropout_) add_module("attention_dropout", attention_dropout_);
  if (wide_dropout_) add_module("wide_dropout", wide_dropout_);
  add_adapters(layers, label);
  mark_block();
}

void TransformerBlock::add_adapters(const TransformerLayers& layers, const std::string& label) {
  const TransformerShape& shape = layers.shape();
  const HeadShape heads = shape.head_shape();
  const std::int64_t width = shape.width, inner = shape.inner_width();
  const std::int64_t queries = heads.heads * heads.head_width, keys = heads.kv_heads * heads.head_width;
  const auto beside = [&](const std::string& layer, std::int64_t in, std::int64_t out, SplitFeatures split) {
    auto adapter = layers.adapter(layer, in, out, split, label + " lora " + layer);
    if (adapter) adapters_.emplace(layer, add_module("lora_" + layer, std::move(adapter)));
  };
  beside("q", width, queries, SplitFeatures::outputs);
  beside("k", width, keys, SplitFeatures::outputs);
  beside("v", width, keys, SplitFeatures::outputs);
  beside("qkv", width, heads.fused_width(), SplitFeatures::outputs);
  beside("o", queries, width, SplitFeatures::inputs);
  beside("gate", width, inner, SplitFeatures::outputs);
  beside("up", width, inner, SplitFeatures::outputs);
  beside("down", inner, width, SplitFeatures::inputs);
}

Tensors TransformerBlock::forward_all(const Tensors& inputs) {
  check_inputs("TransformerBlock", inputs, 1, 3);
  return {through_block(inputs[0], {.causal = causal_,
                                    .mask = inputs.size() > 1 ? inputs[1] : Tensor(),
                                    .documents = inputs.size() > 2 ? inputs[2] : Tensor()})};
}

Tensor TransformerBlock::forward_cached(const Tensor& x, KeyValueCache& cache, const Tensor& positions) {
  return through_block(x, {.causal = causal_, .cache = &cache, .positions = positions});
}

Tensor TransformerBlock::through_block(const Tensor& x, const AttentionContext& given) {
  AttentionContext context = given;
  if (rotary_) context.rotary = &*rotary_;
  const auto attention = [&](const Tensor& in) {
    return dropped(attention_dropout_, adapted(proj_, "o", attend_heads(fused_heads(in), heads_, context)));
  };
  const auto wide = [&](const Tensor& in) { return dropped(wide_dropout_, feed_forward(in)); };
  if (!norm_first_) {
    const Tensor h = (*norm1_)(add(x, attention(x)));
    return (*norm2_)(add(h, wide(h)));
  }
  const Tensor h = add(x, attention((*norm1_)(x)));
  return add(h, wide((*norm2_)(h)));
}

Tensor TransformerBlock::adapted(const std::shared_ptr<Module>& layer, std::string_view name,
                                 const Tensor& x) {
  const auto adapter = adapters_.find(name);
  const Tensor y = (*layer)(x);  // before the adapter: both call the other ranks, where they are split
  return adapter == adapters_.end() ? y : add(y, (*adapter->second)(x));
}

Tensor TransformerBlock::fused_heads(const Tensor& x) {
  const Tensor fused = adapted(qkv_, "qkv", x);
  const auto of = [&](std::string_view name) {
    const auto adapter = adapters_.find(name);
    return adapter == adapters_.end() ? Tensor() : (*adapter->second)(x);
  };
  const Tensor query = of("q"), key = of("k"), value = of("v");
  if (!query.defined() && !key.defined() && !value.defined()) return fused;
  return add(fused, fuse_heads(query, key, value, heads_));
}

Tensor TransformerBlock::feed_forward(const Tensor& x) {
  switch (kind_) {
    case FeedForward::gelu:
      return adapted(down_, "down", gelu(adapted(up_, "up", x)));
    case FeedForward::gelu_tanh:
      return adapted(down_, "down", gelu_tanh(adapted(up_, "up", x)));
    case FeedForward::relu:
      return adapted(down_, "down", relu(adapted(up_, "up", x)));
    case FeedForward::swiglu:
      break;
  }
  return adapted(down_, "down", silu_mul(adapted(gate_, "gate", x), adapted(up_, "up", x)));
}

}  // namespace dtrain
