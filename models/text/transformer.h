// A transformer that predicts the next token (a small GPT), whole or split among ranks.
#pragma once

#include <memory>

#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct TransformerShape {
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  ///< tokens that are seen at most
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  bool tied = false;   ///< words of output have the table of the words of input (Press and Wolf 2017)
  double dropout = 0;  ///< share of features that training drops behind embeddings, attention and 4 · width
};

/// tokens, integers [B, L], L <= context → logits [B, L, vocabulary]. Blocks of causal attention and a layer
/// of 4 · width with gelu, each behind a norm and with a path around it (Radford et al. 2019); the words of
/// input and output have tables of their own unless they are tied. Rows of a block's qkv go head by head (q,
/// k, v of the first head, then of the second, …), so that heads can be split. Dropout is where GPT-2 has
/// it, but not within attention: on the sum of words and places, and on what attention and the layer of 4 ·
/// width add to the path around them.
///
/// Divided, every rank of the group calls it alike with the same tokens; in training the logits are this
/// rank's part of the vocabulary (see vocab_parallel_cross_entropy), in evaluation all of them. The initial
/// weights are slices of the unsplit network's.
class Transformer final : public Module, public Chained {
 public:
  /// Throws UsageError for a width that the heads do not divide, for heads or words that the ranks do not,
  /// and for a dropout that is not at least 0 and below 1.
  Transformer(const TransformerShape& shape, Generator& generator, const std::shared_ptr<Device>& device,
              const TensorParallelGroup* tp_group = nullptr);
  Tensor forward(const Tensor& tokens) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::optional<TensorParallelGroup> tp_group_;
  std::shared_ptr<Module> embed_;
  std::shared_ptr<ModuleList> blocks_;
  std::shared_ptr<Module> norm_, head_;
};

}  // namespace dtrain
