// Layers split among ranks (Shoeybi et al., "Megatron-LM", 2019; Korthikanti et al., "Reducing Activation
// Recomputation in Large Transformer Models", 2022). Every rank of the group runs the same network on the
// same samples, each with its slices; the initial weights are slices of those the unsplit layer draws.
//
//     columns   y = x·Wᵀ, each rank some of the outputs:  x is whole, y is this rank's part (or gathered)
//     rows      y = x·Wᵀ, each rank some of the inputs:   x is this rank's part, y the sum over the ranks
//
// A column layer, an element-wise function and a row layer make one block with one sum forwards and one
// backwards. With a sequence dimension the activations between blocks are cut along it: the sum becomes a
// reduce_scatter at the end of a block and an all_gather at the beginning of the next, the same bytes, and
// norms and dropout in between work on a part.
#pragma once

#include <optional>

#include "parallel/tensor/split_module.h"
#include "runtime/autograd/ops.h"
#include "runtime/nn/embedding.h"

namespace dtrain {

struct ColumnOptions {
  bool bias = true;
  Activation activation = Activation::none;
  /// Gives all ranks the whole output.
  bool gather_output = false;
  /// The dimension along which the input is cut over the ranks; nothing: it is whole on each.
  std::optional<int> sequence_dim = std::nullopt;
};

/// x [..., in] → [..., out / ranks], or [..., out]. Parameters: weight [out / ranks, in], bias [out / ranks],
/// named as Linear's.
class ColumnParallelLinear : public SplitModule {
 public:
  /// `label` names its collectives, the same on all ranks. Throws UsageError where `out` is not a multiple of
  /// the ranks.
  ColumnParallelLinear(std::int64_t in, std::int64_t out, Generator& generator,
                       const std::shared_ptr<Device>& device, const RankGroup& group, std::string label,
                       ColumnOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  ColumnOptions options_;
  std::string label_;
  Tensor weight_, bias_;
};

struct RowOptions {
  bool bias = true;
  /// The dimension along which the output is cut over the ranks; nothing: it is whole on each.
  std::optional<int> sequence_dim = std::nullopt;
};

/// x [..., in / ranks] → [..., out]. Parameters: weight [out, in / ranks]; bias [out], whole, added once.
class RowParallelLinear : public SplitModule {
 public:
  RowParallelLinear(std::int64_t in, std::int64_t out, Generator& generator,
                    const std::shared_ptr<Device>& device, const RankGroup& group, std::string label,
                    RowOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  RowOptions options_;
  std::string label_;
  Tensor weight_, bias_;
};

/// Rows of a table that is cut by rows: index i64 of any shape, equal on all ranks → index.shape + [width],
/// whole on all ranks. Parameter: weight [count / ranks, width].
class VocabParallelEmbedding : public SplitModule {
 public:
  VocabParallelEmbedding(std::int64_t count, std::int64_t width, Generator& generator,
                         const std::shared_ptr<Device>& device, const RankGroup& group, std::string label,
                         EmbeddingOptions options = {});
  Tensor forward(const Tensor& index) override;

 private:
  std::string label_;
  Tensor weight_;
  std::optional<std::int64_t> padding_;  ///< among this rank's rows, where it has that one
};

/// LayerNorm of activations that are cut along the sequence: weight and bias are whole on all ranks, and each
/// rank's gradient of them is the sum over the ranks.
class SequenceParallelNorm : public SplitModule {
 public:
  SequenceParallelNorm(const Dims& shape, const std::shared_ptr<Device>& device, const RankGroup& group,
                       std::string label, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;

 private:
  Dims shape_;
  double eps_;
  std::string label_;
  Tensor weight_, bias_;
};

/// RMSNorm of such activations; see there.
class SequenceParallelRMSNorm : public SplitModule {
 public:
  SequenceParallelRMSNorm(const Dims& shape, const std::shared_ptr<Device>& device, const RankGroup& group,
                          std::string label, double eps = 1.1920928955078125e-07);
  Tensor forward(const Tensor& x) override;

 private:
  Dims shape_;
  double eps_;
  std::string label_;
  Tensor weight_;
};

/// The mean cross entropy of logits that are cut by classes: `logits` [N, classes / ranks] float32 or
/// float64, `target` i64 [N] of all classes, equal on all ranks; rows where it is `ignore_index` are left
/// out. Only maxima and sums of rows cross the ranks, never the logits. Every rank has the whole loss.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target, const RankGroup& group,
                                    std::string_view label,
                                    std::optional<std::int64_t> ignore_index = std::nullopt);

}  // namespace dtrain
