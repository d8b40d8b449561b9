// What a transformer makes of tokens before its first block: words and places, in BERT kinds of tokens too.
#pragma once

#include <memory>
#include <optional>

#include "models/text/transformer_layers.h"

namespace dtrain {

/// tokens, integers [B, L] → [B, L, width] (of a split sequence this rank's part). Inputs: tokens; of BERT's
/// the segment of each, integers [B, L] (undefined: all 0); where places count from the beginnings of
/// documents those, i32 [B, L] (AttentionContext). Parameters: words.weight, positions
/// [context, width] without rotary, segments.weight and norm where there are segments.
class TokenEmbedding final : public MultiModule {
 public:
  explicit TokenEmbedding(const TransformerLayers& layers);
  Tensors forward_all(const Tensors& inputs) override;
  /// The same of tokens that are at `positions`, i64 [B, L].
  Tensor forward_at(const Tensor& tokens, const Tensor& positions);

 private:
  void check_tokens(const Tensor& tokens) const;

  std::string_view name_;
  std::int64_t context_;
  std::shared_ptr<Module> words_, segments_, norm_;  ///< the last two null without segments
  Tensor positions_;                                 ///< undefined with rotary
  std::shared_ptr<Module> dropout_;                  ///< null without
  std::optional<TensorParallelGroup> tp_group_;      ///< that the sequence is split among
};

}  // namespace dtrain
