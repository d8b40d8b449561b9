#include "models/text/token_embedding.h"

#include <fmt/format.h>

#include "parallel/functional.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/base/error.h"
#include "runtime/nn/attention.h"

namespace dtrain {

TokenEmbedding::TokenEmbedding(const TransformerLayers& layers)
    : name_(name_of(layers.shape().family)),
      context_(layers.shape().context),
      words_(add_module("words", layers.words())) {
  const TransformerShape& shape = layers.shape();
  if (!shape.rotary) {
    positions_ = add_parameter(
        "positions", mul(Tensor::randn({shape.context, shape.width}, layers.generator(), layers.device()),
                         shape.table_deviation));
  }
  if (shape.segments > 0) {
    segments_ = add_module("segments", layers.table(shape.segments));
    norm_ = add_module("norm", layers.norm("embed norm"));
  }
  dropout_ = layers.dropout();
  if (dropout_) add_module("dropout", dropout_);
  if (layers.splits_sequence()) tp_group_.emplace(*layers.tp_group());
}

void TokenEmbedding::check_tokens(const Tensor& tokens) const {
  if (tokens.rank() == 2 && tokens.size(1) <= context_) return;
  throw UsageError(fmt::format("{}: expected tokens [B, L] with at most {} of them, got {}", name_, context_,
                               tokens.describe()));
}

Tensors TokenEmbedding::forward_all(const Tensors& inputs) {
  check_inputs("TokenEmbedding", inputs, 1, 3);
  const Tensor& tokens = inputs[0];
  check_tokens(tokens);
  Tensor h = (*words_)(tokens.to(DType::i64));
  if (positions_.defined()) {
    const bool packed = inputs.size() > 2 && inputs[2].defined();
    h = add(h,
            packed ? embedding(positions_in(inputs[2]), positions_) : positions_.slice(0, 0, tokens.size(1)));
  }
  if (segments_) {
    const bool given = inputs.size() > 1 && inputs[1].defined();
    h = add(h, (*segments_)(given ? inputs[1].to(DType::i64) : Tensor::zeros_like(tokens, DType::i64)));
  }
  if (tp_group_) h = own_part(h, 1, tp_group_->group, "sequence");
  if (norm_) h = (*norm_)(h);
  return {dropped(dropout_, h)};
}

Tensor TokenEmbedding::forward_at(const Tensor& tokens, const Tensor& positions) {
  const Tensor h = (*words_)(tokens.to(DType::i64));
  return positions_.defined() ? add(h, embedding(positions, positions_)) : h;
}

}  // namespace dtrain
