// Softmax and losses.
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/loss_parts.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

/// `result`, the log_softmax of the rows of x, as a recorded function of x.
Tensor record_log_softmax(Tensor result, const Tensor& x) {
  if (!recording(x)) return result;
  Saved output = Saved::output(result);
  return record("log_softmax", std::move(result), {x},
                [output = std::move(output)](const Tensor& grad, GradSink& sink) {
                  const Tensor probability = exp(output.get(sink));
                  sink.deliver(0, sub(grad, mul(probability, sum(grad, {-1}, true))));
                });
}

/// log_softmax of each row of x [R, C].
Tensor log_softmax_rows(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().log_softmax(x.view(), result.view());
  return record_log_softmax(std::move(result), x);
}

/// 1 where a row counts, else 0; int64.
Tensor counted(const Tensor& target, std::int64_t ignored) {
  const Tensor number = Tensor::from_data({ignored}, {1}, target.shared_device());
  return add(neg(equal(target, number)), 1);
}

/// With create_graph: the gradient of row_losses as differentiable operations. `log_probs` stand where the
/// logits stand in the graph: their derivatives need no other values.
Tensor row_losses_gradient(const Tensor& grad, const Tensor& log_probs, const Tensor& target,
                           IgnoredTarget ignored) {
  const Tensor classes = Tensor::arange(log_probs.size(1), grad.shared_device());
  const Tensor hit = equal(target.unsqueeze(1), classes.unsqueeze(0)).to(grad.dtype());
  const Tensor probability = exp(record_log_softmax(log_probs.detach(), log_probs));
  const Tensor gradient = mul(sub(probability, hit), grad.unsqueeze(1));
  if (!ignored) return gradient;
  const Tensor counts = counted(target, *ignored).to(grad.dtype()).unsqueeze(1);
  return where(counts, gradient, Tensor::zeros({}, grad.shared_device(), grad.dtype()));
}

/// One loss a row.
Tensor row_losses(const Tensor& logits, const Tensor& target, IgnoredTarget ignored) {
  Tensor log_probs = Tensor::empty(logits.shape(), logits.shared_device(), logits.dtype());
  Tensor losses = Tensor::empty({logits.size(0)}, logits.shared_device(), logits.dtype());
  logits.device().kernels().cross_entropy(logits.view(), target.view(), ignored, log_probs.view(),
                                          losses.view());
  if (!recording(logits)) return losses;
  log_probs.attach(logits.autograd_state());  // for row_losses_gradient; the logits themselves can go
  return record("cross_entropy", std::move(losses), {logits},
                [log_probs, ignored, classes = Saved::input(target)](const Tensor& grad, GradSink& sink) {
                  const Tensor wanted = classes.get(sink);
                  if (grad_enabled()) {
                    return sink.deliver(0, row_losses_gradient(grad, log_probs, wanted, ignored));
                  }
                  Tensor grad_logits = sink.destination(0, grad.shared_device());
                  grad.device().kernels().cross_entropy_backward(log_probs.view(), wanted.view(), ignored,
                                                                 grad.view(), grad_logits.view());
                  sink.deliver(0, std::move(grad_logits));
                });
}

}  // namespace

void check_classes(const Tensor& logits, const Tensor& target) {
  check_floating("cross_entropy", logits);
  check_same_device("cross_entropy", logits, target);
  bool fits = target.dtype() == DType::i64 && logits.rank() > 0 && target.rank() == logits.rank() - 1;
  for (int i = 0; fits && i < target.rank(); ++i) fits = target.size(i) == logits.size(i == 0 ? 0 : i + 1);
  if (fits) return;
  throw UsageError("cross_entropy: expected logits [N, C, …] and target int64 [N, …], got " +
                   logits.describe() + " and " + target.describe());
}

Tensor rows_of_classes(const Tensor& x) {
  if (x.rank() == 2) return x;
  Dims order;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != class_dim(x)) order.push_back(i);
  }
  order.push_back(class_dim(x));
  const std::int64_t classes = x.size(class_dim(x));
  return x.permute(order).reshape({classes == 0 ? 0 : x.numel() / classes, classes});
}

Tensor reduced(const Tensor& losses, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::mean:
      return mean(losses);
    case LossReduction::sum:
      return sum(losses);
    case LossReduction::batch_mean:
      if (losses.rank() == 0) return losses;
      return div(sum(losses), losses.size(0));
    case LossReduction::none:
      break;
  }
  return losses;
}

Tensor log_softmax(const Tensor& given, int dim) {
  const Tensor x = autocast_full(given);
  check_floating("log_softmax", x);
  if (x.rank() == 0) throw UsageError("log_softmax: expected at least one dimension, got " + x.describe());
  const int along = normalize_dim(dim, x.rank(), "log_softmax");
  if (along != x.rank() - 1) return log_softmax(x.transpose(along, -1), -1).transpose(along, -1);
  const std::int64_t classes = x.size(-1);
  const Tensor rows = x.reshape({classes == 0 ? 0 : x.numel() / classes, classes}).contiguous();
  return log_softmax_rows(rows).reshape(x.shape());
}

Tensor softmax(const Tensor& x, int dim) { return exp(log_softmax(x, dim)); }

Tensor cross_entropy(const Tensor& given, const Tensor& target, LossReduction reduction,
                     std::optional<std::int64_t> ignore_index) {
  if (is_floating(target.dtype())) {
    return cross_entropy(given, target,
                         CrossEntropyOptions{.reduction = reduction, .ignore_index = ignore_index});
  }
  const Tensor logits = autocast_full(given);
  check_classes(logits, target);
  const Tensor losses =
      row_losses(rows_of_classes(logits).contiguous(), target.flatten().contiguous(), ignore_index)
          .reshape(target.shape());
  if (!ignore_index || reduction != LossReduction::mean) return reduced(losses, reduction);
  return div(sum(losses), sum(counted(target, *ignore_index)).to(losses.dtype()));
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
