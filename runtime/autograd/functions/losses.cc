// Softmax and losses.
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"

namespace dtrain {
namespace {

Tensor reduced(const Tensor& losses, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::mean:
      return mean(losses);
    case LossReduction::sum:
      return sum(losses);
    case LossReduction::none:
      break;
  }
  return losses;
}

/// log_softmax of each row of x [R, C].
Tensor log_softmax_rows(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().log_softmax(x.view(), result.view());
  if (!recording(x)) return result;
  Saved output = Saved::output(result);
  return record("log_softmax", std::move(result), {x},
                [output = std::move(output)](const Tensor& grad, GradSink& sink) {
                  const Tensor probability = exp(output.get(sink));
                  sink.deliver(0, sub(grad, mul(probability, sum(grad, {-1}, true))));
                });
}

/// One loss a row.
Tensor row_losses(const Tensor& logits, const Tensor& target) {
  Tensor log_probs = Tensor::empty(logits.shape(), logits.shared_device(), logits.dtype());
  Tensor losses = Tensor::empty({logits.size(0)}, logits.shared_device(), logits.dtype());
  logits.device().kernels().cross_entropy(logits.view(), target.view(), log_probs.view(), losses.view());
  if (!recording(logits)) return losses;
  return record("cross_entropy", std::move(losses), {logits},
                [log_probs, classes = Saved::input(target)](const Tensor& grad, GradSink& sink) {
                  Tensor grad_logits = sink.destination(0, grad.shared_device());
                  grad.device().kernels().cross_entropy_backward(log_probs.view(), classes.get(sink).view(),
                                                                 grad.view(), grad_logits.view());
                  sink.deliver(0, differentiable_once(sink, grad, std::move(grad_logits)));
                });
}

}  // namespace

Tensor log_softmax(const Tensor& given) {
  const Tensor x = autocast_full(given);
  check_floating("log_softmax", x);
  if (x.rank() == 0) throw UsageError("log_softmax: expected at least one dimension, got " + x.describe());
  const std::int64_t classes = x.size(-1);
  const Tensor rows = x.reshape({classes == 0 ? 0 : x.numel() / classes, classes}).contiguous();
  return log_softmax_rows(rows).reshape(x.shape());
}

Tensor softmax(const Tensor& x) { return exp(log_softmax(x)); }

Tensor cross_entropy(const Tensor& given, const Tensor& target, LossReduction reduction) {
  const Tensor logits = autocast_full(given);
  check_floating("cross_entropy", logits);
  check_same_device("cross_entropy", logits, target);
  if (logits.rank() != 2 || target.rank() != 1 || target.dtype() != DType::i64 ||
      target.size(0) != logits.size(0)) {
    throw UsageError("cross_entropy: expected logits [R, C] and target int64 [R], got " + logits.describe() +
                     " and " + target.describe());
  }
  return reduced(row_losses(logits.contiguous(), target.contiguous()), reduction);
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, LossReduction reduction) {
  check_same_kind("mse_loss", prediction, target);
  if (prediction.shape() != target.shape()) {
    throw UsageError("mse_loss: expected prediction and target of one shape, got " + prediction.describe() +
                     " and " + target.describe());
  }
  return reduced(square(sub(prediction, target)), reduction);
}

}  // namespace dtrain
