#include "parallel/tensor/layers.h"

#include <fmt/format.h>

#include "parallel/span_of.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"

namespace dtrain {
namespace {

/// The values that the unsplit layer would begin with, by name.
Tensor drawn(const Module& layer, std::string_view name) {
  for (const auto& [own, tensor] : layer.named_parameters()) {
    if (own == name) return tensor.detach();
  }
  return {};
}

/// 1 where `index` is in [first, first + count), else 0; in index's dtype.
Tensor is_inside(const Tensor& index, std::int64_t first, std::int64_t count) {
  const Tensor from = Tensor::full({}, static_cast<double>(first), index.shared_device(), index.dtype());
  const Tensor end =
      Tensor::full({}, static_cast<double>(first + count), index.shared_device(), index.dtype());
  return mul(greater_equal(index, from), less(index, end));
}

/// Rows that are split evenly among the ranks.
struct OwnRows {
  Tensor index;   ///< among this rank's; 0 for those of other ranks
  Tensor inside;  ///< 1 for this rank's, else 0
};

/// Where `index`, among all rows, points here. What no rank has stays as it is, so that the kernel that looks
/// it up refuses it: counted as another rank's it would be one that nobody has.
OwnRows own_rows(const Tensor& index, std::int64_t count, const RankGroup& group) {
  const std::int64_t first = count * group.communicator.rank(), all = count * group.communicator.size();
  const Tensor inside = is_inside(index, first, count), nowhere = add(neg(is_inside(index, 0, all)), 1);
  return {add(mul(sub(index, first), inside), mul(index, nowhere)), inside};
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(std::int64_t in, std::int64_t out, Generator& generator,
                                           const std::shared_ptr<Device>& device, const RankGroup& group,
                                           std::string label, ColumnOptions options)
    : SplitModule(group), options_(options), label_(std::move(label)) {
  const Linear unsplit(in, out, generator, device, {.bias = options.bias});
  weight_ = add_slice("ColumnParallelLinear", "weight", drawn(unsplit, "weight"), 0);
  if (options.bias) bias_ = add_slice("ColumnParallelLinear", "bias", drawn(unsplit, "bias"), 0);
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  const Tensor whole = options_.sequence_dim ? all_gather(x, *options_.sequence_dim, group(), label_)
                                             : copy_to_ranks(x, group(), label_);
  const Tensor y = linear(whole, weight_, bias_, options_.activation);
  return options_.gather_output ? gather_alike(y, -1, group(), label_) : y;
}

RowParallelLinear::RowParallelLinear(std::int64_t in, std::int64_t out, Generator& generator,
                                     const std::shared_ptr<Device>& device, const RankGroup& group,
                                     std::string label, RowOptions options)
    : SplitModule(group), options_(options), label_(std::move(label)) {
  const Linear unsplit(in, out, generator, device, {.bias = options.bias});
  weight_ = add_slice("RowParallelLinear", "weight", drawn(unsplit, "weight"), 1);
  if (options.bias) bias_ = add_parameter("bias", drawn(unsplit, "bias"));
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  const Tensor part = linear(x, weight_, {});
  if (!options_.sequence_dim) {
    const Tensor y = all_reduce(part, group(), label_);
    return bias_.defined() ? add(y, bias_) : y;
  }
  const Tensor y = reduce_scatter(part, *options_.sequence_dim, group(), label_);
  // Each rank adds it to other places of the sequence.
  return bias_.defined() ? add(y, copy_to_ranks(bias_, group(), label_ + " bias")) : y;
}

VocabParallelEmbedding::VocabParallelEmbedding(std::int64_t count, std::int64_t width, Generator& generator,
                                               const std::shared_ptr<Device>& device, const RankGroup& group,
                                               std::string label, EmbeddingOptions options)
    : SplitModule(group), label_(std::move(label)) {
  const Embedding unsplit(count, width, generator, device, options);
  weight_ = add_slice("VocabParallelEmbedding", "weight", drawn(unsplit, "weight"), 0);
  const std::int64_t own = weight_.size(0), first = own * rank();
  if (options.padding_index && *options.padding_index >= first && *options.padding_index < first + own)
    padding_ = *options.padding_index - first;
}

// Rows of other ranks are looked up as row 0 and counted as zero.
Tensor VocabParallelEmbedding::forward(const Tensor& index) {
  const OwnRows own = own_rows(index, weight_.size(0), group());
  const Tensor rows = embedding(own.index, weight_, padding_);
  return all_reduce(mul(rows, own.inside.to(rows.dtype()).unsqueeze(-1)), group(), label_);
}

SequenceParallelNorm::SequenceParallelNorm(const Dims& shape, const std::shared_ptr<Device>& device,
                                           const RankGroup& group, std::string label, double eps)
    : SplitModule(group), shape_(shape), eps_(eps), label_(std::move(label)) {
  weight_ = add_parameter("weight", Tensor::ones(shape, device));
  bias_ = add_parameter("bias", Tensor::zeros(shape, device));
}

Tensor SequenceParallelNorm::forward(const Tensor& x) {
  return layer_norm(x, shape_, copy_to_ranks(weight_, group(), label_ + " weight"),
                    copy_to_ranks(bias_, group(), label_ + " bias"), eps_);
}

SequenceParallelRMSNorm::SequenceParallelRMSNorm(const Dims& shape, const std::shared_ptr<Device>& device,
                                                 const RankGroup& group, std::string label, double eps)
    : SplitModule(group), shape_(shape), eps_(eps), label_(std::move(label)) {
  weight_ = add_parameter("weight", Tensor::ones(shape, device));
}

Tensor SequenceParallelRMSNorm::forward(const Tensor& x) {
  return rms_norm(x, shape_, copy_to_ranks(weight_, group(), label_ + " weight"), eps_);
}

Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target, const RankGroup& group,
                                    std::string_view label, std::optional<std::int64_t> ignore_index) {
  if (logits.rank() != 2 || target.shape() != Dims{logits.size(0)}) {
    throw UsageError(
        fmt::format("vocab_parallel_cross_entropy: expected logits [N, classes / ranks] and target [N], "
                    "got {} and {}",
                    logits.describe(), target.describe()));
  }
  // Taken off every logit of a row: no gradient goes through it.
  const Tensor largest = amax(logits.detach(), {1}, true);
  group.communicator.all_reduce(span_of(largest), ReduceOp::max, label)
      ->wait(Deadline::after(group.patience));
  const Tensor shifted = sub(logits, largest);
  const Tensor sums = all_reduce(sum(exp(shifted), {1}), group, label);

  // A row that is left out has class 0, and counts as nothing.
  Tensor counts, looked_up = target;
  if (ignore_index) {
    const Tensor left_out = equal(target, Tensor::from_data({*ignore_index}, {1}, target.shared_device()));
    counts = add(neg(left_out), 1);
    looked_up = mul(target, counts);
  }
  const OwnRows classes = own_rows(looked_up, logits.size(1), group);
  const Tensor found = gather(shifted, 1, classes.index.unsqueeze(1)).squeeze(1);
  const Tensor nothing = Tensor::zeros({}, found.shared_device(), found.dtype());
  const Tensor own = all_reduce(where(classes.inside.to(found.dtype()), found, nothing), group, label);
  const Tensor losses = sub(log(sums), own);
  if (!ignore_index) return mean(losses);
  const Tensor counted = counts.to(losses.dtype());
  return div(sum(mul(losses, counted)), sum(counted));
}

}  // namespace dtrain
