// Cross entropy with weights, label smoothing and probabilities as targets, and KL divergence.
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/loss_parts.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_options(const Tensor& logits, const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw UsageError("cross_entropy: expected a label_smoothing from 0 to 1, got " +
                     std::to_string(options.label_smoothing));
  }
  if (!options.weight.defined()) return;
  check_same_kind("cross_entropy", logits, options.weight);
  const std::int64_t classes = logits.size(class_dim(logits));
  if (options.weight.shape() != Dims{classes}) {
    throw UsageError("cross_entropy: expected a weight [" + std::to_string(classes) +
                     "], one for each class, got " + options.weight.describe());
  }
}

Tensor weighted(const Tensor& rows, const Tensor& weight) {
  return weight.defined() ? mul(rows, weight.detach()) : rows;
}

Tensor of_probabilities(const Tensor& logits, const Tensor& given, const CrossEntropyOptions& options) {
  check_same_kind("cross_entropy", logits, given);
  if (given.shape() != logits.shape() || options.ignore_index) {
    throw UsageError(options.ignore_index
                         ? "cross_entropy: expected no ignore_index beside a target of probabilities"
                         : "cross_entropy: expected a target of probabilities shaped as the logits " +
                               logits.describe() + ", got " + given.describe());
  }
  const Tensor rows = rows_of_classes(logits);
  const double spread = options.label_smoothing;
  Tensor target = rows_of_classes(given);
  if (spread > 0) target = add(mul(target, 1 - spread), spread / static_cast<double>(rows.size(1)));
  const Tensor losses = neg(sum(weighted(mul(log_softmax(rows), target), options.weight), {1}));
  Dims shape;
  for (int i = 0; i < logits.rank(); ++i) {
    if (i != class_dim(logits)) shape.push_back(logits.size(i));
  }
  return reduced(losses.reshape(shape), options.reduction);
}

}  // namespace

Tensor cross_entropy(const Tensor& given, const Tensor& target, const CrossEntropyOptions& options) {
  const Tensor logits = autocast_full(given);
  check_floating("cross_entropy", logits);
  check_options(logits, options);
  if (is_floating(target.dtype())) return of_probabilities(logits, autocast_full(target), options);
  check_classes(logits, target);
  const double spread = options.label_smoothing;
  if (spread == 0 && !options.weight.defined())
    return cross_entropy(logits, target, options.reduction, options.ignore_index);
  const Tensor log_probs = log_softmax(rows_of_classes(logits));
  const Tensor classes = target.flatten();
  const Tensor ignored = options.ignore_index ? classes == *options.ignore_index : isnan(classes);
  const Tensor chosen = masked_fill(classes, ignored, 0);
  const Tensor ones = Tensor::ones(chosen.shape(), logits.shared_device(), logits.dtype());
  const Tensor of_class = options.weight.defined() ? options.weight.detach().index_select(0, chosen) : ones;
  const Tensor share = masked_fill(of_class, ignored, 0);  // of each element in the mean
  const Tensor hit = gather(log_probs, 1, chosen.unsqueeze(1)).squeeze(1);
  Tensor losses = mul(mul(hit, share), spread - 1);
  if (spread > 0) {
    const Tensor all = masked_fill(sum(weighted(log_probs, options.weight), {1}), ignored, 0);
    losses = sub(losses, mul(all, spread / static_cast<double>(log_probs.size(1))));
  }
  // Multiplied by a weight, not chosen: an ignored element's -∞ · 0 would be NaN.
  losses = masked_fill(losses, ignored, 0);
  if (options.reduction == LossReduction::mean) return div(sum(losses), sum(share));
  return reduced(losses.reshape(target.shape()), options.reduction);
}

Tensor kl_div(const Tensor& given, const Tensor& given_target, LossReduction reduction, bool log_target) {
  const Tensor prediction = autocast_full(given), target = autocast_full(given_target);
  check_floating("kl_div", prediction);
  check_same_kind("kl_div", prediction, target);
  if (prediction.shape() != target.shape()) {
    throw UsageError("kl_div: expected prediction and target of one shape, got " + prediction.describe() +
                     " and " + target.describe());
  }
  if (log_target) return reduced(mul(exp(target), sub(target, prediction)), reduction);
  const Tensor entropy = mul(target, log(masked_fill(target, target == 0, 1)));
  return reduced(sub(entropy, mul(target, prediction)), reduction);
}

}  // namespace dtrain
