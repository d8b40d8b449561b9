// Batch normalisation, with what usually follows it (adding a shortcut, relu) in the same pass over memory.
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/convolution_shape.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"

namespace dtrain {
namespace {

struct NormSaved {
  Saved x, weight, y;
  std::optional<Saved> bias;  ///< on a GPU where nothing was added: the gate can be told from it
  Tensor mean, inv_std;
  BatchNormRule rule;
  bool has_weight = false;
  std::shared_ptr<BatchPeers> peers;  ///< null: the batch is all here
};

void check_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                      const Tensor& var, const Tensor& residual, bool training) {
  check_floating("batch_norm", x);
  for (const Tensor* other : {&weight, &bias, &mean, &var, &residual})
    check_same_device("batch_norm", x, *other);
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  bool fits = x.rank() == 4 && (training || (mean.defined() && var.defined()));
  for (const Tensor* vector : {&weight, &bias, &mean, &var}) {
    fits = fits && (!vector->defined() || (vector->shape() == Dims{x.size(1)} && vector->dtype() == dtype));
  }
  fits = fits && (!residual.defined() || (residual.shape() == x.shape() && residual.dtype() == x.dtype()));
  if (fits) return;
  const auto text = [](const Tensor& tensor) { return tensor.defined() ? tensor.describe() : "none"; };
  throw UsageError("batch_norm: expected x [N, C, H, W], weight, bias and running statistics " +
                   std::string(name_of(dtype)) +
                   " [C] (the latter needed in evaluation) and a residual like x, got " + x.describe() +
                   ", " + text(weight) + ", " + text(bias) + ", " + text(mean) + ", " + text(var) + " and " +
                   text(residual));
}

/// Memory for what the parts of a batch exchange: see kernels.h.
Tensor make_totals(const Tensor& x) {
  return Tensor::empty({2 * x.size(1) + 1}, x.shared_device(), DType::f64);
}

/// batch_norm, with the statistics of all parts of the batch.
void norm_among_peers(BatchPeers& peers, const BatchNormRule& rule, const BatchNormChannels& channels,
                      const Tensor& x, const Tensor& residual, const Tensor& result) {
  Kernels& kernels = x.device().kernels();
  const Tensor mine = make_totals(x);
  const Tensor all = Tensor::empty({peers.size(), mine.numel()}, x.shared_device(), DType::f64);
  kernels.batch_norm_moments(x.view(), mine.view());
  peers.all_gather(mine, all);
  kernels.batch_norm_combine(rule, channels, all.view());
  kernels.batch_norm_apply(rule, channels, x.view(), view_or_none(residual), result.view());
}

/// What a backward kernel is given and fills in.
struct NormGradients {
  const Tensor &y, &grad, &grad_x, &grad_residual, &grad_weight, &grad_bias;
};

/// batch_norm_backward, with the sums of all parts of the batch.
void norm_backward_among_peers(BatchPeers& peers, const BatchNormChannels& channels, const Tensor& x,
                               const NormGradients& of) {
  Kernels& kernels = x.device().kernels();
  const Tensor sums = make_totals(x);
  kernels.batch_norm_grad_sums(channels, x.view(), view_or_none(of.y), of.grad.view(),
                               view_or_none(of.grad_residual), view_or_none(of.grad_weight),
                               view_or_none(of.grad_bias), sums.view());
  peers.add_up(sums);
  // What was gated for the residual need not be gated again.
  const bool gated = of.grad_residual.defined();
  kernels.batch_norm_grad_input(channels, sums.view(), x.view(), gated ? View{} : view_or_none(of.y),
                                gated ? of.grad_residual.view() : of.grad.view(), of.grad_x.view());
}

/// With create_graph: the gradients as differentiable operations of x, whose statistics are computed again.
void norm_backward_recorded(const NormSaved& saved, const Tensor& given, bool has_residual, GradSink& sink) {
  const bool gated = saved.rule.activation == Activation::relu;
  const Tensor inner = gated ? relu_grad(given, saved.y.get(sink)) : given;
  if (has_residual && sink.wants(3)) sink.deliver(3, inner);
  const Tensor x = saved.x.get(sink), grad = inner.to(saved.mean.dtype());
  const Dims over = {0, 2, 3};
  const auto centered_of = [&over](const Tensor& values) { return sub(values, mean(values, over, true)); };
  const Tensor centered = centered_of(x.to(grad.dtype()));
  const Tensor inv_std = rsqrt(add(mean(square(centered), over, true), saved.rule.eps));
  const Tensor normal = mul(centered, inv_std);
  if (sink.wants(1)) sink.deliver(1, sum(mul(grad, normal), over));
  if (sink.wants(2)) sink.deliver(2, sum(grad, over));
  if (!sink.wants(0)) return;
  const Tensor weighted =
      saved.has_weight ? mul(grad, saved.weight.get(sink).reshape({1, x.size(1), 1, 1})) : grad;
  const Tensor along = mul(normal, mean(mul(weighted, normal), over, true));
  sink.deliver(0, mul(sub(centered_of(weighted), along), inv_std).to(x.dtype()));
}

void norm_backward(const NormSaved& saved, const Tensor& given, bool has_residual, GradSink& sink) {
  if (grad_enabled() && saved.peers == nullptr) {
    return norm_backward_recorded(saved, given, has_residual, sink);
  }
  const Tensor x = saved.x.get(sink), weight = saved.has_weight ? saved.weight.get(sink) : Tensor();
  const bool gated = saved.rule.activation == Activation::relu;
  const Tensor y = gated ? saved.y.get(sink) : Tensor();
  const Tensor grad = given.contiguous(x.memory_format());
  const auto& device = grad.shared_device();
  const Tensor grad_x = empty_like(x);
  const bool residual_wanted = has_residual && sink.wants(3);
  const Tensor grad_residual = residual_wanted && gated ? empty_like(x) : Tensor();
  const Tensor grad_weight = sink.wants(1) ? sink.destination(1, device) : Tensor();
  const Tensor grad_bias = sink.wants(2) ? sink.destination(2, device) : Tensor();
  BatchNormChannels channels;
  const Tensor bias = saved.bias ? saved.bias->get(sink) : Tensor();
  channels.weight = view_or_none(weight);
  channels.bias = view_or_none(bias);
  channels.mean = saved.mean.view();
  channels.inv_std = saved.inv_std.view();
  if (saved.peers != nullptr) {
    norm_backward_among_peers(*saved.peers, channels, x,
                              {y, grad, grad_x, grad_residual, grad_weight, grad_bias});
  } else {
    device->kernels().batch_norm_backward(saved.rule, channels, x.view(), view_or_none(y), grad.view(),
                                          grad_x.view(), view_or_none(grad_residual),
                                          view_or_none(grad_weight), view_or_none(grad_bias));
  }
  if (grad_weight.defined()) sink.deliver(1, once_differentiable(sink, grad, grad_weight));
  if (grad_bias.defined()) sink.deliver(2, once_differentiable(sink, grad, grad_bias));
  if (residual_wanted) {
    sink.deliver(3, gated ? once_differentiable(sink, grad, grad_residual) : grad);
  }
  if (!sink.wants(0)) return;
  const Tensor grad_input = once_differentiable(sink, grad, grad_x);
  // Of a part of a batch only all parts' sums together are 0.
  saved.peers == nullptr ? sink.deliver_zero_mean(0, grad_input) : sink.deliver(0, grad_input);
}

/// What batch_norm has of its channels, each [C] or undefined.
struct BatchNormTensors {
  Tensor weight, bias, running_mean, running_var;
};

/// Training with the statistics of this batch, around the kernel.
struct NormCall {
  NormCall(const Tensor& given, const BatchNormTensors& tensors, const BatchNormRule& its_rule,
           const Tensor& added)
      : x(given),
        norm(tensors),
        rule(its_rule),
        residual(added),
        mean(
            Tensor::empty({x.size(1)}, x.shared_device(), x.dtype() == DType::f64 ? DType::f64 : DType::f32)),
        inv_std(empty_like(mean)),
        result(empty_like(x)) {}
  BatchNormChannels channels() const {
    return {view_or_none(norm.weight),
            view_or_none(norm.bias),
            view_or_none(norm.running_mean),
            view_or_none(norm.running_var),
            mean.view(),
            inv_std.view()};
  }

  Tensor x;
  BatchNormTensors norm;
  BatchNormRule rule;
  Tensor residual, mean, inv_std, result;
};

/// The result with its history, once the kernel has been called.
Tensor record_norm(const NormCall& call, const std::shared_ptr<BatchPeers>& peers) {
  const auto& [x, norm, rule, residual, mean, inv_std, result] = call;
  const auto& [weight, bias, running_mean, running_var] = norm;
  if (running_mean.defined()) running_mean.mark_modified();
  if (running_var.defined()) running_var.mark_modified();
  if (!recording({x, weight, bias, residual})) return result;
  NormSaved saved;
  saved.x = Saved::input(x);
  saved.mean = mean;
  saved.inv_std = inv_std;
  saved.has_weight = weight.defined();
  if (weight.defined()) saved.weight = Saved::input(weight);
  if (rule.activation == Activation::relu) {
    saved.y = Saved::output(result);
    const bool told_by_bias = x.device().type() == DeviceType::cuda && bias.defined() && !residual.defined();
    if (told_by_bias) saved.bias = Saved::input(bias);
  }
  saved.rule = rule;
  saved.peers = peers;
  return record("batch_norm", result, {x, weight, bias, residual},
                [saved = std::move(saved), has_residual = residual.defined()](
                    const Tensor& grad, GradSink& sink) { norm_backward(saved, grad, has_residual, sink); });
}

Tensor normalize_batch(const Tensor& x, const BatchNormTensors& norm, const BatchNormRule& rule,
                       const Tensor& residual, const std::shared_ptr<BatchPeers>& peers) {
  const NormCall call(x, norm, rule, residual);
  if (x.numel() == 0 && peers == nullptr) {  // as in PyTorch, nothing has no statistics
    return record_constant("batch_norm", call.result, {x, norm.weight, norm.bias, residual});
  }
  if (peers != nullptr) {
    norm_among_peers(*peers, rule, call.channels(), x, residual, call.result);
  } else {
    x.device().kernels().batch_norm(rule, call.channels(), x.view(), view_or_none(residual),
                                    call.result.view());
  }
  return record_norm(call, peers);
}

/// Evaluation with gradients, which nobody needs fast: in differentiable operations.
Tensor normalize_recorded(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                          const Tensor& var, const BatchNormRule& rule, const Tensor& residual) {
  const Dims row = {1, x.size(1), 1, 1};
  Tensor y = mul(sub(x.to(mean.dtype()), mean.reshape(row)), rsqrt(add(var, rule.eps)).reshape(row));
  if (weight.defined()) y = mul(y, weight.reshape(row));
  if (bias.defined()) y = add(y, bias.reshape(row));
  y = y.to(x.dtype());
  if (residual.defined()) y = add(y, residual);
  return rule.activation == Activation::relu ? relu(y) : y;
}

}  // namespace

Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormRule& rule, bool training, const Tensor& shortcut,
                  const std::shared_ptr<BatchPeers>& peers) {
  if (shortcut.defined() && autocast_mixes(input, shortcut)) {
    return batch_norm(autocast_full(input), weight, bias, running_mean, running_var, rule, training,
                      autocast_full(shortcut), peers);
  }
  check_batch_norm(input, weight, bias, running_mean, running_var, shortcut, training);
  const Tensor x = is_dense(input) ? input : input.contiguous(MemoryFormat::channels_last);
  const Tensor residual = shortcut.defined() ? shortcut.contiguous(x.memory_format()) : Tensor();
  if (training) return normalize_batch(x, {weight, bias, running_mean, running_var}, rule, residual, peers);
  if (recording({x, weight, bias, residual})) {
    return normalize_recorded(x, weight, bias, running_mean, running_var, rule, residual);
  }
  Tensor result = empty_like(x);
  const BatchNormChannels channels{
      view_or_none(weight), view_or_none(bias), running_mean.view(), running_var.view(), {}, {}};
  x.device().kernels().batch_norm_inference(rule, channels, x.view(), view_or_none(residual), result.view());
  return result;
}

}  // namespace dtrain
