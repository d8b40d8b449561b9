// linear and cross_entropy by slices of rows: a slice's logits become its losses, then its gradients, and are
// gone. Slices of rows, not of the vocabulary: those would need each logit twice, four products for three.
#include "runtime/autograd/ops/linear_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"

namespace dtrain {
namespace {

// On a GPU a slice's product needs more rows to fill it, and the weight's gradient is read and written once a
// slice.
constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 24, kLogitsAtOnceOnGpu = std::int64_t{1} << 26;
constexpr std::int64_t kRowStep = 32;  ///< what products are fast with
constexpr std::int64_t kAlignedWords = 8;

/// A matrix, or its transpose, as a batch of one.
View as_batch(const Tensor& x, bool transposed = false) {
  View view = x.view();
  view.shape = {1, x.size(transposed ? 1 : 0), x.size(transposed ? 0 : 1)};
  view.strides = {0, x.strides()[transposed ? 1 : 0], x.strides()[transposed ? 0 : 1]};
  return view;
}

void multiply(View a, View b, bool adds, const Tensor& out) {
  out.device().kernels().matmul(a, b, {}, Activation::none, adds, as_batch(out));
}

/// What the loss of all rows is made of.
struct Given {
  Tensor x, weight, target;  ///< [N, K]; [V, K], in x's dtype; i64 [N]
  IgnoredTarget ignored;
  DType weight_dtype;
  bool wants_x, wants_weight;
};

struct Found {
  Tensor losses = {};                    ///< [N], 0 in ignored rows
  Tensor grad_x = {}, grad_weight = {};  ///< of the sum of losses; undefined where not wanted
};

/// Rows of all slices but the last: slices of one length, so that none is short.
std::int64_t rows_of_slice(const Device& device, std::int64_t rows, std::int64_t vocabulary,
                           std::int64_t asked) {
  if (asked > 0) return asked;
  const std::int64_t room = device.type() == DeviceType::cpu ? kLogitsAtOnce : kLogitsAtOnceOnGpu;
  const std::int64_t fits = std::max<std::int64_t>(room / std::max<std::int64_t>(vocabulary, 1), 1);
  const std::int64_t slices = (rows + fits - 1) / fits, even = (rows + slices - 1) / slices;
  return (even + kRowStep - 1) / kRowStep * kRowStep;
}

/// The weight with rows of zeros behind it: matrix units read rows of logits 16 bytes at a time, and a
/// vocabulary of 50,257 begins each at another byte (H100, bf16: 20 ms of products for 5).
Tensor with_aligned_rows(const Tensor& weight) {
  const std::int64_t words = weight.size(0),
                     aligned = (words + kAlignedWords - 1) / kAlignedWords * kAlignedWords;
  if (weight.device().type() == DeviceType::cpu || aligned == words) return weight;
  Tensor padded = Tensor::empty({aligned, weight.size(1)}, weight.shared_device(), weight.dtype());
  padded.slice(0, 0, words).copy_from(weight);
  padded.slice(0, words, aligned).fill(0);
  return padded;
}

Found by_slices(const Given& given, std::int64_t length) {
  const std::int64_t rows = given.x.size(0), words = given.weight.size(0);
  const Tensor weight = with_aligned_rows(given.weight);
  const DType exact = given.x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto& device = given.x.shared_device();
  Kernels& kernels = device->kernels();
  Found found{Tensor::empty({rows}, device, exact)};
  if (given.wants_x) found.grad_x = Tensor::empty(given.x.shape(), device, given.x.dtype());
  if (given.wants_weight) found.grad_weight = Tensor::empty(weight.shape(), device, given.weight_dtype);
  const bool wants_slopes = given.wants_x || given.wants_weight;
  const Tensor logits = Tensor::empty({std::min(length, rows), weight.size(0)}, device, exact);
  const Tensor low = wants_slopes && given.x.dtype() != exact
                         ? Tensor::empty(logits.shape(), device, given.x.dtype())
                         : logits;
  low.slice(1, words, weight.size(0)).fill(0);  // as the logits there are
  for (std::int64_t first = 0; first < rows; first += length) {
    const std::int64_t end = std::min(rows, first + length), count = end - first;
    const Tensor part = given.x.slice(0, first, end), target = given.target.slice(0, first, end);
    const Tensor scores = logits.slice(0, 0, count), all_slopes = low.slice(0, 0, count);
    multiply(as_batch(part), as_batch(weight, true), false, scores);
    kernels.cross_entropy_slopes(autocast_rounded(scores.slice(1, 0, words)).view(), target.view(),
                                 given.ignored, found.losses.slice(0, first, end).view(),
                                 wants_slopes ? all_slopes.slice(1, 0, words).view() : View{});
    if (!wants_slopes) continue;
    const Tensor slopes = autocast_rounded(all_slopes);  // at most 1: float16 holds them
    if (given.wants_weight) {
      multiply(as_batch(slopes, true), as_batch(part), first > 0, found.grad_weight);
    }
    if (given.wants_x) {
      multiply(as_batch(slopes), as_batch(weight), false, found.grad_x.slice(0, first, end));
    }
  }
  if (given.wants_weight) found.grad_weight = found.grad_weight.slice(0, 0, words);
  return found;
}

/// 1 / the rows that count; ∞ where none does, so that the mean is NaN.
Tensor share_of_rows(const Tensor& target, IgnoredTarget ignored, DType dtype) {
  const auto& device = target.shared_device();
  if (!ignored) return Tensor::full({}, 1.0 / static_cast<double>(target.numel()), device, dtype);
  const Tensor left_out = equal(target, Tensor::from_data({*ignored}, {1}, device));
  return reciprocal(sum(add(neg(left_out), 1)).to(dtype));
}

void check(const Tensor& x, const Tensor& weight, const Tensor& target,
           const LinearCrossEntropyOptions& options) {
  check_floating("linear_cross_entropy", x);
  const bool fits = x.rank() == 2 && weight.rank() == 2 && target.rank() == 1 &&
                    x.size(1) == weight.size(1) && target.size(0) == x.size(0) &&
                    target.dtype() == DType::i64;
  if (!fits) {
    throw UsageError("linear_cross_entropy: expected x [N, K], weight [V, K] and target int64 [N], got " +
                     x.describe() + ", " + weight.describe() + " and " + target.describe());
  }
  if (options.reduction != LossReduction::mean && options.reduction != LossReduction::sum) {
    throw UsageError(
        "linear_cross_entropy: expected the reduction mean or sum; use cross_entropy for others");
  }
}

/// `whole` · `factor`, written to where the gradient is to live.
Tensor scaled(int input, const Tensor& whole, const Tensor& factor, GradSink& sink) {
  const NoGrad no_grad;
  Tensor to = sink.destination(input, whole.shared_device());
  const DType exact = factor.dtype();
  if (whole.dtype() == exact) {
    whole.device().kernels().binary(BinaryOp::mul, whole.view(), factor.expand(whole.shape()).view(),
                                    to.view());
  } else {  // the factor is not to be rounded
    to.copy_from(mul(whole.to(exact), factor).to(whole.dtype()));
  }
  return to;
}

void deliver_scaled(int input, const Tensor& whole, const Tensor& factor, const Tensor& grad,
                    GradSink& sink) {
  if (!sink.wants(input)) return;
  Tensor gradient = scaled(input, whole, factor, sink);
  sink.deliver(input, once_differentiable(sink, grad, std::move(gradient)));
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& given, const Tensor& given_weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options) {
  const Tensor x = autocast_low(given).contiguous(), weight = autocast_rounded(given_weight).contiguous();
  const Tensor w = autocast_weight(weight, x);
  check(x, weight, target, options);
  check_same_kind("linear_cross_entropy", x, w);
  check_same_device("linear_cross_entropy", x, target);
  const bool wants_x = recording(x), wants_weight = recording(weight);
  const DType exact = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Found found;
  Tensor loss, share;  // share: of a row in the loss
  {
    const NoGrad no_grad;
    share = options.reduction == LossReduction::sum ? Tensor::full({}, 1, x.shared_device(), exact)
                                                    : share_of_rows(target, options.ignore_index, exact);
    found = by_slices({x.detach(), w.detach(), target.contiguous(), options.ignore_index, weight.dtype(),
                       wants_x, wants_weight},
                      rows_of_slice(x.device(), x.size(0), w.size(0), options.rows_at_once));
    loss = mul(sum(std::exchange(found.losses, {})), share);
    // ∞ where no row counts: the slopes are 0 then, and so are the gradients, as of cross_entropy.
    share = minimum(share, Tensor::full({}, 1, share.shared_device(), exact));
  }
  if (!wants_x && !wants_weight) return loss;
  return record("linear_cross_entropy", std::move(loss), {x, weight},
                [found = std::move(found), share](const Tensor& grad, GradSink& sink) {
                  const Tensor factor = mul(grad.detach(), share);
                  deliver_scaled(1, found.grad_weight, factor, grad, sink);
                  deliver_scaled(0, found.grad_x, factor, grad, sink);
                });
}

}  // namespace dtrain
