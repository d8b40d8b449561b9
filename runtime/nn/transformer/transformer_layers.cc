#include "runtime/nn/transformer/transformer_layers.h"

#include <string>

#include "runtime/autograd/ops.h"

namespace dtrain {

TransformerLayer::TransformerLayer(std::int64_t width, std::int64_t heads,
                                   const TransformerLayerOptions& options, bool has_memory,
                                   Generator& generator, const std::shared_ptr<Device>& device)
    : options_(options) {
  mark_block();
  const auto attention = [&](const char* name) {
    return add_module(name, std::make_shared<MultiheadAttention>(
                                width, heads,
                                MultiheadAttentionOptions{.dropout = options.dropout,
                                                          .dropout_key = options.dropout_key,
                                                          .bias = options.bias,
                                                          .batch_first = options.batch_first},
                                generator, device));
  };
  const auto dropout = [&](const std::string& name) {
    if (options.dropout == 0) return std::shared_ptr<Dropout>();
    return add_module(name, std::make_shared<Dropout>(options.dropout, options.dropout_key));
  };
  const auto layer = [&](const char* name, std::int64_t in, std::int64_t out, Activation activation) {
    return add_module(
        name, std::make_shared<Linear>(in, out, generator, device,
                                       LinearOptions{.bias = options.bias, .activation = activation}));
  };
  self_attention_ = attention("self_attn");
  if (has_memory) memory_attention_ = attention("multihead_attn");
  const bool relu = options.activation == FeedForwardActivation::relu;
  linear1_ = layer("linear1", width, options.feed_forward, relu ? Activation::relu : Activation::none);
  dropout_ = dropout("dropout");
  linear2_ = layer("linear2", options.feed_forward, width, Activation::none);
  const int parts = has_memory ? 3 : 2;
  for (int i = 1; i <= parts; ++i) {
    norms_.push_back(
        add_module("norm" + std::to_string(i),
                   std::make_shared<LayerNorm>(Dims{width}, device, options.layer_norm_eps, options.bias)));
  }
  for (int i = 1; i <= parts; ++i) dropouts_.push_back(dropout("dropout" + std::to_string(i)));
}

// Masks of dropout go by sample, so samples come first there.
Tensor TransformerLayer::dropped(const std::shared_ptr<Dropout>& dropout, const Tensor& x) const {
  if (dropout == nullptr || !is_training()) return x;
  const bool turns = !options_.batch_first && x.rank() == 3;
  return turns ? (*dropout)(x.transpose(0, 1)).transpose(0, 1) : (*dropout)(x);
}

template <class Part>
Tensor TransformerLayer::with_shortcut(std::size_t number, const Tensor& x, const Part& part) const {
  LayerNorm& norm = *norms_[number];
  if (options_.norm_first) return add(x, dropped(dropouts_[number], part(norm(x))));
  return norm(add(x, dropped(dropouts_[number], part(x))));
}

Tensor TransformerLayer::feed_forward(const Tensor& x) const {
  const Tensor wide = (*linear1_)(x);
  const bool is_gelu = options_.activation == FeedForwardActivation::gelu;
  return (*linear2_)(dropped(dropout_, is_gelu ? gelu(wide) : wide));
}

Tensor TransformerLayer::attended(MultiheadAttention& attention, const Tensor& x, const Tensor& memory,
                                  const SequenceMasks& masks) {
  return attention
      .attend(x, memory, memory,
              {.key_padding_mask = masks.key_padding_mask,
               .attention_mask = masks.attention_mask,
               .causal = masks.causal})
      .output;
}

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t width, std::int64_t heads,
                                                 const TransformerLayerOptions& options, Generator& generator,
                                                 const std::shared_ptr<Device>& device)
    : TransformerLayer(width, heads, options, false, generator, device) {}

Tensor TransformerEncoderLayer::encode(const Tensor& x, const SequenceMasks& masks) {
  const Tensor seen =
      with_shortcut(0, x, [&](const Tensor& part) { return attended(*self_attention_, part, part, masks); });
  return with_shortcut(1, seen, [&](const Tensor& part) { return feed_forward(part); });
}

Tensors TransformerEncoderLayer::forward_all(const Tensors& inputs) {
  check_inputs("TransformerEncoderLayer", inputs, 1, 3);
  const auto input = [&](std::size_t i) { return inputs.size() > i ? inputs[i] : Tensor(); };
  return {encode(inputs[0], {.attention_mask = input(1), .key_padding_mask = input(2)})};
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t width, std::int64_t heads,
                                                 const TransformerLayerOptions& options, Generator& generator,
                                                 const std::shared_ptr<Device>& device)
    : TransformerLayer(width, heads, options, true, generator, device) {}

Tensor TransformerDecoderLayer::decode(const Tensor& x, const Tensor& memory, const SequenceMasks& masks,
                                       const SequenceMasks& memory_masks) {
  const Tensor seen =
      with_shortcut(0, x, [&](const Tensor& part) { return attended(*self_attention_, part, part, masks); });
  const Tensor told = with_shortcut(
      1, seen, [&](const Tensor& part) { return attended(*memory_attention_, part, memory, memory_masks); });
  return with_shortcut(2, told, [&](const Tensor& part) { return feed_forward(part); });
}

Tensors TransformerDecoderLayer::forward_all(const Tensors& inputs) {
  check_inputs("TransformerDecoderLayer", inputs, 2, 6);
  const auto input = [&](std::size_t i) { return inputs.size() > i ? inputs[i] : Tensor(); };
  return {decode(inputs[0], inputs[1], {.attention_mask = input(2), .key_padding_mask = input(4)},
                 {.attention_mask = input(3), .key_padding_mask = input(5)})};
}

}  // namespace dtrain
