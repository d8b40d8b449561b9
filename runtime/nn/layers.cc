#include "runtime/nn/layers.h"

#include <string>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"

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

Pool2dGeometry square_pool(std::string_view layer, PoolKind kind, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding) {
  if (kernel < 1 || stride < 0 || padding < 0 || padding * 2 > kernel) {
    throw UsageError(
        std::string(layer) + ": expected kernel >= 1, stride >= 0 and padding of 0 to kernel / 2, got " +
        std::to_string(kernel) + ", " + std::to_string(stride) + " and " + std::to_string(padding));
  }
  const std::int64_t step = stride == 0 ? kernel : stride;
  return {kind, kernel, kernel, step, step, padding, padding};
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, const std::shared_ptr<Device>& device,
               LinearOptions options)
    : activation_(options.activation) {
  check_features("Linear", in, out);
  weight_ = add_parameter("weight", init_weight({out, in}, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias({out, in}, generator, device));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_, activation_); }

Conv2d::Conv2d(std::int64_t in, std::int64_t out, KernelSize kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv2dOptions options)
    : options_(options) {
  const Dims shape = conv_weight_shape(in, out, kernel, options_.geometry.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Tensor Conv2d::forward(const Tensor& x) {
  if (options_.pool && options_.activation == Activation::relu) {
    return conv2d_relu_pool2d(x, weight_, bias_, options_.geometry, *options_.pool);
  }
  const Tensor result = conv2d(x, weight_, bias_, options_.geometry, options_.activation);
  return options_.pool ? pool2d(result, *options_.pool) : result;
}

MaxPool2d::MaxPool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding)
    : geometry_(square_pool("MaxPool2d", PoolKind::max, kernel, stride, padding)) {}

AvgPool2d::AvgPool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding)
    : geometry_(square_pool("AvgPool2d", PoolKind::avg, kernel, stride, padding)) {}

BatchNorm2d::BatchNorm2d(std::int64_t features, const std::shared_ptr<Device>& device, double eps,
                         double momentum)
    : eps_(eps), momentum_(momentum) {
  check_features("BatchNorm2d", features, features);
  weight_ = add_parameter("weight", Tensor::ones({features}, device));
  bias_ = add_parameter("bias", Tensor::zeros({features}, device));
  running_mean_ = add_buffer("running_mean", Tensor::zeros({features}, device));
  running_var_ = add_buffer("running_var", Tensor::ones({features}, device));
  batches_ = add_buffer("num_batches_tracked", Tensor::zeros({}, device, DType::i64));
}

bool BatchNorm2d::begin_batch() {
  const bool again = is_training() && recomputing();
  if (is_training() && !again) {
    // On the device, so that a captured step counts too: 1 · count + 1, in one launch and without a constant.
    batches_.device().kernels().affine(batches_.view(), 1.0, 1.0, batches_.view());
    batches_.mark_modified();
  }
  return again;
}

Tensor BatchNorm2d::forward(const Tensor& x, Activation activation, const Tensor& residual) {
  const bool again = begin_batch();
  return batch_norm(x, weight_, bias_, again ? Tensor() : running_mean_, again ? Tensor() : running_var_,
                    {eps_, momentum_, activation}, is_training(), residual, peers_);
}

int synchronize_batch_norms(Module& module, const std::shared_ptr<BatchPeers>& peers) {
  int count = 0;
  module.visit([&](Module& one) {
    auto* const norm = dynamic_cast<BatchNorm2d*>(&one);
    if (norm == nullptr) return;
    norm->synchronize(peers);
    ++count;
  });
  return count;
}

}  // namespace dtrain
