// BERT (Devlin et al. 2018), whole or split among ranks: what it makes of tokens that see each other both
// ways.
#pragma once

#include <memory>
#include <optional>

#include "models/text/transformer_shape.h"
#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// What stands behind the blocks.
struct BertHeads {
  bool words = true;          ///< a number for each word at each place (masked words)
  bool next_sentence = true;  ///< two numbers for whether the second segment comes after the first
  std::int64_t classes = 0;   ///< of a classification of the whole; 0: none

  bool operator==(const BertHeads&) const = default;
};

/// Inputs: tokens, integers [B, L], L <= context. Optionally, in this order, and undefined where the next one
/// is given alone: the segment of each token, integers [B, L] (else all 0); of a network with a head for
/// words, the positions whose words are wanted, i64 [B, M] (else all of them); which tokens are no padding,
/// [B, L], 1 or 0 (else all). Outputs, those there are in this order: words [B, M, vocabulary], next sentence
/// [B, 2], classes [B, classes].
///
/// Split, every rank calls it alike; in training the logits of words are this rank's part where
/// splits_words(), in evaluation all of them.
class Bert final : public MultiModule {
 public:
  /// Throws UsageError as checked(), for a shape of another family, and where ranks cut the sequence.
  Bert(const TransformerShape& shape, const BertHeads& heads, Generator& generator,
       const std::shared_ptr<Device>& device, const TensorParallelGroup* tp_group = nullptr);
  Tensors forward_all(const Tensors& inputs) override;

  const TransformerShape& shape() const noexcept { return shape_; }

 private:
  Tensor word_logits(const Tensor& h);
  Tensors forward_heads(const Tensor& h, const Tensor& positions);

  TransformerShape shape_;
  BertHeads heads_;
  std::optional<TensorParallelGroup> tp_group_;
  std::shared_ptr<Module> embed_;
  std::shared_ptr<ModuleList> blocks_;
  std::shared_ptr<Module> pooler_, dense_, norm_, words_, next_, classes_;  ///< null without
  std::shared_ptr<Module> dropout_;                                         ///< null without
};

}  // namespace dtrain
