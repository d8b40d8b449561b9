#include "runtime/nn/layers.h"

#include <string>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"
#include "runtime/nn/print.h"

namespace dtrain {
namespace {

void check_features(std::string_view layer, std::int64_t in, std::int64_t out) {
  if (in >= 1 && out >= 1) return;
  throw UsageError(std::string(layer) + ": expected at least one input and one output, got " +
                   std::to_string(in) + " and " + std::to_string(out));
}

Dims conv_weight_shape(std::int64_t in, std::int64_t out, KernelSize kernel, std::int64_t groups) {
  check_features("Conv2d", in, out);
  if (kernel.height < 1 || kernel.width < 1 || groups < 1 || in % groups != 0 || out % groups != 0) {
    throw UsageError("Conv2d: expected kernel >= 1 and groups that divide " + std::to_string(in) + " and " +
                     std::to_string(out) + ", got kernel " + std::to_string(kernel.height) + " x " +
                     std::to_string(kernel.width) + " and groups " + std::to_string(groups));
  }
  return {out, in / groups, kernel.height, kernel.width};
}

Pool2dGeometry pool_geometry(std::string_view layer, PoolKind kind, KernelSize kernel, KernelSize stride,
                             KernelSize padding) {
  const auto fits = [](std::int64_t window, std::int64_t step, std::int64_t pad) {
    return window >= 1 && step >= 0 && pad >= 0 && pad * 2 <= window;
  };
  if (!fits(kernel.height, stride.height, padding.height) ||
      !fits(kernel.width, stride.width, padding.width)) {
    const auto text = [](KernelSize size) { return repr::number_or_tuple({size.height, size.width}); };
    throw UsageError(std::string(layer) +
                     ": expected kernel >= 1, stride >= 0 and padding of 0 to kernel / 2, got " +
                     text(kernel) + ", " + text(stride) + " and " + text(padding));
  }
  const auto step = [](std::int64_t given, std::int64_t window) { return given == 0 ? window : given; };
  return {kind,
          kernel.height,
          kernel.width,
          step(stride.height, kernel.height),
          step(stride.width, kernel.width),
          padding.height,
          padding.width};
}

std::string repr_of(const Pool2dGeometry& g) {
  return "kernel_size=" + repr::number_or_tuple({g.kernel_h, g.kernel_w}) +
         ", stride=" + repr::number_or_tuple({g.stride_h, g.stride_w}) +
         ", padding=" + repr::number_or_tuple({g.pad_h, g.pad_w});
}

Conv2dOptions options_of(const Conv2dSettings& given) {
  return {.geometry = {given.stride.height, given.stride.width, given.padding.height, given.padding.width,
                       given.dilation.height, given.dilation.width, given.groups},
          .bias = given.bias,
          .activation = given.activation};
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, const std::shared_ptr<Device>& device,
               LinearOptions options)
    : activation_(options.activation) {
  check_features("Linear", in, out);
  weight_ = add_parameter("weight", init_weight({out, in}, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias({out, in}, generator, device));
}

std::string Linear::extra_repr() const {
  return "in_features=" + std::to_string(weight_.size(1)) +
         ", out_features=" + std::to_string(weight_.size(0)) + ", bias=" + repr::flag(bias_.defined());
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_, activation_); }

Conv2d::Conv2d(std::int64_t in, std::int64_t out, KernelSize kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv2dOptions options)
    : options_(options) {
  const Dims shape = conv_weight_shape(in, out, kernel, options_.geometry.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, const Conv2dSettings& settings, Generator& generator,
               const std::shared_ptr<Device>& device)
    : Conv2d(in, out, settings.kernel, generator, device, options_of(settings)) {}

std::string Conv2d::extra_repr() const {
  const Conv2dGeometry& g = options_.geometry;
  return repr::convolution({.in = weight_.size(1) * g.groups,
                            .out = weight_.size(0),
                            .kernel = {weight_.size(2), weight_.size(3)},
                            .stride = {g.stride_h, g.stride_w},
                            .padding = {g.pad_h, g.pad_w},
                            .dilation = {g.dilation_h, g.dilation_w},
                            .groups = g.groups,
                            .bias = bias_.defined()});
}

Tensor Conv2d::forward(const Tensor& x) {
  if (options_.pool && options_.activation == Activation::relu) {
    return conv2d_relu_pool2d(x, weight_, bias_, options_.geometry, *options_.pool);
  }
  const Tensor result = conv2d(x, weight_, bias_, options_.geometry, options_.activation);
  return options_.pool ? pool2d(result, *options_.pool) : result;
}

AvgPool2d::AvgPool2d(KernelSize kernel, KernelSize stride, KernelSize padding)
    : geometry_(pool_geometry("AvgPool2d", PoolKind::avg, kernel, stride, padding)) {}

std::string AvgPool2d::extra_repr() const { return repr_of(geometry_); }

std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + repr::tuple({height_, width_}); }

BatchNorm::BatchNorm(std::string_view layer, std::int64_t features, const std::shared_ptr<Device>& device,
                     double eps, double momentum)
    : eps_(eps), momentum_(momentum) {
  check_features(layer, features, features);
  weight_ = add_parameter("weight", Tensor::ones({features}, device));
  bias_ = add_parameter("bias", Tensor::zeros({features}, device));
  running_mean_ = add_buffer("running_mean", Tensor::zeros({features}, device));
  running_var_ = add_buffer("running_var", Tensor::ones({features}, device));
  batches_ = add_buffer("num_batches_tracked", Tensor::zeros({}, device, DType::i64));
}

std::string BatchNorm::extra_repr() const {
  return std::to_string(weight_.size(0)) + ", eps=" + repr::number(eps_) +
         ", momentum=" + repr::number(momentum_) + ", affine=True, bias=True, track_running_stats=True";
}

bool BatchNorm::begin_batch() {
  const bool again = is_training() && recomputing();
  if (is_training() && !again) {
    // On the device, so that a captured step counts too: 1 · count + 1, in one launch and without a constant.
    batches_.device().kernels().affine(batches_.view(), 1.0, 1.0, batches_.view());
    batches_.mark_modified();
  }
  return again;
}

Tensor BatchNorm::normalize(const Tensor& x, Activation activation, const Tensor& residual) {
  const bool again = begin_batch();
  return batch_norm(x, weight_, bias_, again ? Tensor() : running_mean_, again ? Tensor() : running_var_,
                    {eps_, momentum_, activation}, is_training(), residual, peers_);
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  if (x.rank() == 2) return normalize(x.reshape({x.size(0), x.size(1), 1, 1})).reshape(x.shape());
  if (x.rank() == 3) return normalize(x.unsqueeze(2)).squeeze(2);
  throw UsageError("BatchNorm1d: expected x [N, C] or [N, C, L], got " + x.describe());
}

// What conv3d gives is frame by frame in memory: as N · D images it need not be copied.
Tensor BatchNorm3d::forward(const Tensor& x, Activation activation, const Tensor& residual) {
  if (x.rank() != 5) throw UsageError("BatchNorm3d: expected x [N, C, D, H, W], got " + x.describe());
  const Dims by_frame = {0, 2, 1, 3, 4};  // its own inverse
  const auto images = [&](const Tensor& t) {
    if (!t.defined()) return t;
    if (x.is_contiguous()) return t.reshape({t.size(0), t.size(1), t.size(2), t.size(3) * t.size(4)});
    return t.permute(by_frame).reshape({t.size(0) * t.size(2), t.size(1), t.size(3), t.size(4)});
  };
  const Tensor y = normalize(images(x), activation, images(residual));
  if (x.is_contiguous()) return y.reshape(x.shape());
  return y.reshape({x.size(0), x.size(2), x.size(1), x.size(3), x.size(4)}).permute(by_frame);
}

int synchronize_batch_norms(Module& module, const std::shared_ptr<BatchPeers>& peers) {
  int count = 0;
  module.visit([&](Module& one) {
    auto* const norm = dynamic_cast<BatchNorm*>(&one);
    if (norm == nullptr) return;
    norm->synchronize(peers);
    ++count;
  });
  return count;
}

}  // namespace dtrain
