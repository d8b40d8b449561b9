// A transformer that predicts the next token, whole or split among ranks: GPT-2, LLaMA and their kin by its
// shape.
#pragma once

#include <memory>
#include <vector>

#include "models/text/transformer_shape.h"
#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// tokens, integers [B, L], L <= context → logits [B, L, vocabulary]. Inputs: tokens, and of rows that hold
/// several documents where the one of each token begins, i32 [B, L] (AttentionContext): then each is seen as
/// if it were alone. Blocks of causal attention and a
/// feed-forward layer, each behind a norm and with a path around it; the words of input and output have
/// tables of their own unless they are tied. Rows of a block's qkv go head by head (HeadShape), so that heads
/// can be split. Dropout is where GPT-2 has it, but not within attention: on the sum of words and places, and
/// on what attention and feed-forward layer add to the path around them.
///
/// Divided, every rank of the group calls it alike with the same tokens; in training the logits are this
/// rank's part of the vocabulary where splits_words() (see vocab_parallel_cross_entropy), in evaluation all
/// of them. The initial weights are slices of the unsplit network's.
class Transformer final : public Module, public Chained {
 public:
  /// Throws UsageError as checked(), and for a shape of BERT's.
  Transformer(const TransformerShape& shape, Generator& generator, const std::shared_ptr<Device>& device,
              const TensorParallelGroup* tp_group = nullptr);
  Tensor forward(const Tensor& tokens) override;
  /// Parts take the second input beside.
  std::vector<LayerUnit> chain() const override;

  /// From now on forward_all() of a network in training gives {features [B, L, width], the head's table
  /// [vocabulary, width]}, of which linear_cross_entropy() makes the loss, instead of the logits, which are
  /// the largest tensors of a step with many words. forward() still gives logits. Throws UsageError for a
  /// split network.
  void leave_head_to_loss();
  Tensors forward_all(const Tensors& inputs) override;

  const TransformerShape& shape() const noexcept { return shape_; }

  // ---- generation, of a network that is whole
  /// One cache a layer, for `batch` rows of at most `capacity` tokens.
  std::vector<KeyValueCache> make_caches(std::int64_t batch, std::int64_t capacity) const;
  /// Logits [B, L, vocabulary] of tokens [B, L] that come after those in `caches`, which then have them too.
  /// Without `positions` (i64 [B, L]) they are the first ones. Without gradients.
  Tensor forward_cached(const Tensor& tokens, std::vector<KeyValueCache>& caches,
                        const Tensor& positions = {});

 private:
  TransformerShape shape_;
  std::optional<TensorParallelGroup> tp_group_;
  std::shared_ptr<Module> embed_;
  std::shared_ptr<ModuleList> blocks_;
  std::shared_ptr<Module> norm_, head_;
  bool leaves_head_ = false;
};

}  // namespace dtrain
