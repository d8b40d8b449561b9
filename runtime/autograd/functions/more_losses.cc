// Binary cross entropy and the losses of absolute differences.
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

void check_pair(std::string_view name, const Tensor& prediction, const Tensor& target) {
  check_floating(name, prediction);
  check_same_kind(name, prediction, target);
  if (prediction.shape() == target.shape()) return;
  throw UsageError(std::string(name) + ": expected prediction and target of one shape, got " +
                   prediction.describe() + " and " + target.describe());
}

Tensor number(const Tensor& like, double value) {
  return Tensor::full({}, value, like.shared_device(), like.dtype());
}

/// On the host, which a device that runs ahead is not made to wait for. What is not a number passes: the loss
/// is none then, and training reports it.
void check_probabilities(std::string_view what, const Tensor& given) {
  const Tensor x = given.detach();
  if (x.numel() == 0 || x.device().runs_ahead()) return;
  const NoGrad no_grad;
  const Tensor flat = x.contiguous().reshape({x.numel()});
  const double least = amin(flat, {0}).item(), most = amax(flat, {0}).item();
  if (!(least < 0) && !(most > 1)) return;
  throw UsageError("binary_cross_entropy: expected " + std::string(what) + " between 0 and 1, got " +
                   std::to_string(least < 0 ? least : most) +
                   "; apply sigmoid(), or use binary_cross_entropy_with_logits()");
}

/// 1 - x
Tensor rest(const Tensor& x) { return add(neg(x), 1.0); }

/// (1 - t) · x + (1 + (w - 1) · t) · -log(sigmoid(x))
Tensor weighted_with_logits(const Tensor& x, const Tensor& target, const Tensor& pos_weight) {
  check_same_kind("binary_cross_entropy_with_logits", x, pos_weight);
  if (!strides_for_expand(pos_weight.view(), target.shape())) {
    throw UsageError("binary_cross_entropy_with_logits: expected a pos_weight that broadcasts to " +
                     target.describe() + ", got " + pos_weight.describe());
  }
  const Tensor factor = add(mul(add(pos_weight, -1.0), target), 1.0);
  constexpr double kExactInFloat64 = 40;
  return add(mul(rest(target), x), mul(factor, softplus(neg(x), 1, kExactInFloat64)));
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& given, const Tensor& given_target, LossReduction reduction) {
  const Tensor p = autocast_full(given), target = autocast_full(given_target);
  check_pair("binary_cross_entropy", p, target);
  check_probabilities("predictions", p);
  check_probabilities("targets", target);
  Tensor losses;
  {
    const NoGrad no_grad;
    const Tensor least = number(p, -100);
    const Tensor log_p = maximum(log(p), least), log_rest = maximum(apply(UnaryOp::log1p, neg(p)), least);
    losses = sub(mul(add(target, -1.0), log_rest), mul(target, log_p));
  }
  losses = record(
      "binary_cross_entropy", std::move(losses), {p, target},
      [probability = Saved::input(p), labels = Saved::input(target)](const Tensor& grad, GradSink& sink) {
        const Tensor x = probability.get(sink), t = labels.get(sink);
        if (sink.wants(0)) {
          const Tensor spread = maximum(mul(rest(x), x), number(x, 1e-12));
          sink.deliver(0, mul(grad, div(sub(x, t), spread)));
        }
        if (sink.wants(1)) sink.deliver(1, mul(grad, sub(log(rest(x)), log(x))));
      });
  return reduced(losses, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& given, const Tensor& given_target,
                                        LossReduction reduction, const Tensor& pos_weight) {
  const Tensor x = autocast_full(given), target = autocast_full(given_target);
  check_pair("binary_cross_entropy_with_logits", x, target);
  if (pos_weight.defined()) return reduced(weighted_with_logits(x, target, pos_weight), reduction);
  Tensor losses;
  {
    const NoGrad no_grad;
    // -log(sigmoid(x)) = max(-x, 0) + log(1 + exp(-|x|)): nothing overflows.
    const Tensor minus_log = add(relu(neg(x)), apply(UnaryOp::log1p, exp(neg(abs(x)))));
    losses = add(mul(rest(target), x), minus_log);
  }
  losses =
      record("binary_cross_entropy_with_logits", std::move(losses), {x, target},
             [logits = Saved::input(x), labels = Saved::input(target)](const Tensor& grad, GradSink& sink) {
               const Tensor z = logits.get(sink);
               if (sink.wants(0)) sink.deliver(0, mul(grad, sub(sigmoid(z), labels.get(sink))));
               if (sink.wants(1)) sink.deliver(1, neg(mul(grad, z)));
             });
  return reduced(losses, reduction);
}

Tensor l1_loss(const Tensor& given, const Tensor& given_target, LossReduction reduction) {
  const Tensor prediction = autocast_full(given), target = autocast_full(given_target);
  check_pair("l1_loss", prediction, target);
  return reduced(abs(sub(prediction, target)), reduction);
}

Tensor smooth_l1_loss(const Tensor& given, const Tensor& given_target, LossReduction reduction, double beta) {
  const Tensor prediction = autocast_full(given), target = autocast_full(given_target);
  check_pair("smooth_l1_loss", prediction, target);
  if (!(beta >= 0)) {
    throw UsageError("smooth_l1_loss: expected beta of at least 0, got " + std::to_string(beta));
  }
  const Tensor distance = sub(prediction, target);
  if (beta == 0) return reduced(abs(distance), reduction);
  // With m = d within ±beta both cases are m · (d - m / 2) / beta. No |d|, whose slope at 0 is none: the
  // second derivative there is 1 / beta.
  const Tensor near = clamp(distance, -beta, beta);
  return reduced(mul(mul(near, sub(distance, mul(near, 0.5))), 1.0 / beta), reduction);
}

}  // namespace dtrain
