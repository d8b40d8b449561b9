// group_norm and instance_norm of ops/norms.h: rows of layer_norm, then each channel's weight and bias.
#include <string>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain {
namespace {

void check_group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias) {
  check_floating("group_norm", x);
  bool fits = x.rank() >= 2 && groups >= 1 && x.size(1) % groups == 0;
  for (const Tensor* parameter : {&weight, &bias}) {
    if (!parameter->defined()) continue;
    check_same_kind("group_norm", x, *parameter);
    fits = fits && parameter->shape() == Dims{x.size(1)};
  }
  if (fits) return;
  const auto text = [](const Tensor& tensor) { return tensor.defined() ? tensor.describe() : "none"; };
  throw UsageError(
      "group_norm: expected x [N, C, …], groups that divide C, and weight and bias [C] or none, got " +
      x.describe() + ", " + std::to_string(groups) + " groups, " + text(weight) + " and " + text(bias));
}

/// A vector of channels, as it broadcasts over x.
Tensor along_channels(const Tensor& vector, const Tensor& x) {
  Dims shape = Dims::filled(x.rank(), 1);
  shape[1] = x.size(1);
  return vector.reshape(shape);
}

}  // namespace

Tensor group_norm(const Tensor& given, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const Tensor x = autocast_full(given);
  check_group_norm(x, groups, weight, bias);
  const auto exact = [](const Tensor& tensor) {  // 16 bits would be rounded after each of three steps
    return tensor.defined() && is_half(tensor.dtype()) ? tensor.to(DType::f32) : tensor;
  };
  if (x.numel() == 0) return mul(x, 1.0);
  const std::int64_t rows = x.size(0) * groups, width = x.numel() / rows;
  Tensor y = layer_norm(exact(x).reshape({rows, width}), {width}, {}, {}, eps).reshape(x.shape());
  if (weight.defined()) y = mul(y, along_channels(exact(weight), x));
  if (bias.defined()) y = add(y, along_channels(exact(bias), x));
  return y.to(x.dtype());
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (x.rank() < 3)
    throw UsageError("instance_norm: expected x [N, C, …] with at least one dimension behind C, got " +
                     x.describe());
  return group_norm(x, x.size(1), weight, bias, eps);
}

}  // namespace dtrain
