#include "models/text/bert.h"

#include <fmt/format.h>

#include <limits>

#include "models/text/token_embedding.h"
#include "models/text/transformer_block.h"
#include "models/text/word_head.h"
#include "parallel/functional.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/activations.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

const TransformerShape& checked_bert(const TransformerShape& shape, const TensorParallelGroup* tp_group) {
  if (shape.family != TransformerFamily::bert)
    throw UsageError(fmt::format("bert: expected the shape of a BERT, got {}", name_of(shape.family)));
  if (shape.lora) throw UsageError("bert: expected no adapters, got some; train all of it, or freeze a part");
  if (tp_group != nullptr && tp_group->sequence)
    throw UsageError("bert: expected ranks that each have the whole sequence, got some that split it");
  return checked(shape, tp_group);
}

/// 0 for tokens, -∞ for padding: added to the scores, [B, 1, 1, L].
Tensor padding_mask(const Tensor& visible) {
  const Tensor seen = visible.to(DType::boolean).reshape({visible.size(0), 1, 1, visible.size(1)});
  const auto number = [&](double value) { return Tensor::full({}, value, visible.shared_device()); };
  return where(seen, number(0), number(-std::numeric_limits<double>::infinity()));
}

/// The features [B, M, width] at `positions` [B, M] of h [B, L, width].
Tensor features_at(const Tensor& h, const Tensor& positions) {
  const auto length = static_cast<double>(h.size(1)), tokens = static_cast<double>(h.size(0)) * length;
  const Tensor first = Tensor::arange(0, tokens, length, h.shared_device());
  return embedding(add(positions, first.unsqueeze(1)), h.reshape({-1, h.size(2)}));
}

}  // namespace

Bert::Bert(const TransformerShape& asked, const BertHeads& heads, Generator& generator,
           const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group)
    : shape_(checked_bert(asked, tp_group)), heads_(heads) {
  if (tp_group != nullptr) tp_group_.emplace(*tp_group);
  const TransformerLayers layers(shape_, generator, device, tp_group);
  embed_ = add_module("embed", std::make_shared<TokenEmbedding>(layers));
  blocks_ = add_module("blocks", std::make_shared<ModuleList>());
  for (std::int64_t i = 0; i < shape_.layers; ++i)
    blocks_->append(std::make_shared<TransformerBlock>(layers, fmt::format("block {}", i)));
  const std::int64_t width = shape_.width;
  if (heads.next_sentence || heads.classes > 0) pooler_ = add_module("pooler", layers.whole(width, width));
  if (heads.words) {
    dense_ = add_module("dense", layers.whole(width, width));
    norm_ = add_module("norm", layers.norm("norm"));
    words_ = add_module("words", make_word_head(layers, *embed_, true));
  }
  if (heads.next_sentence) next_ = add_module("next", layers.whole(width, 2));
  if (heads.classes > 0) {
    classes_ = add_module("classes", layers.whole(width, heads.classes));
    dropout_ = layers.dropout();
    if (dropout_) add_module("dropout", dropout_);
  }
}

Tensors Bert::forward_all(const Tensors& inputs) {
  const std::size_t last = words_ ? 3 : 2;  // which input says what is no padding
  check_inputs("Bert", inputs, 1, last + 1);
  Tensors embedded{inputs[0]};
  if (inputs.size() > 1) embedded.push_back(inputs[1]);
  Tensor h = (*embed_)(embedded)[0];
  const Tensor mask = inputs.size() > last && inputs[last].defined() ? padding_mask(inputs[last]) : Tensor();
  for (const auto& [name, block] : blocks_->children())
    h = mask.defined() ? (*block)(Tensors{h, mask})[0] : (*block)(h);
  return forward_heads(h, words_ && inputs.size() > 2 ? inputs[2] : Tensor());
}

Tensors Bert::forward_heads(const Tensor& h, const Tensor& positions) {
  Tensors outputs;
  if (words_) outputs.push_back(word_logits(positions.defined() ? features_at(h, positions) : h));
  if (!pooler_) return outputs;
  const Tensor pooled = tanh((*pooler_)(h.select(1, 0)));
  if (next_) outputs.push_back((*next_)(pooled));
  if (classes_) outputs.push_back((*classes_)(dropped(dropout_, pooled)));
  return outputs;
}

Tensor Bert::word_logits(const Tensor& h) {
  const Tensor dense = (*dense_)(h);
  const Tensor turned = shape_.feed_forward == FeedForward::relu        ? relu(dense)
                        : shape_.feed_forward == FeedForward::gelu_tanh ? gelu_tanh(dense)
                                                                        : gelu(dense);
  const Tensor logits = (*words_)((*norm_)(turned));
  if (!tp_group_ || is_training() || !splits_words(shape_, *tp_group_)) return logits;
  return gather_alike(logits, -1, tp_group_->group, "logits");
}

}  // namespace dtrain
