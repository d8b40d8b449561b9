#include "runtime/nn/init.h"

#include <cmath>
#include <span>
#include <vector>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {

std::int64_t fan_in(const Dims& weight_shape) {
  if (weight_shape.rank() < 2) {
    throw UsageError("fan_in: expected a weight of at least two dimensions, got shape " +
                     weight_shape.to_string());
  }
  return Dims(std::span(weight_shape.begin() + 1, weight_shape.end())).product();
}

Tensor init_weight(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device) {
  // The order of these roundings is PyTorch's; √(1/fan_in) would differ in the last bit.
  const double gain = std::sqrt(2.0 / (1 + 5.0));
  const double deviation = gain / std::sqrt(static_cast<double>(fan_in(shape)));
  const double bound = std::sqrt(3.0) * deviation;
  return Tensor::rand(shape, generator, device, static_cast<float>(-bound), static_cast<float>(bound));
}

Tensor init_bias(const Dims& weight_shape, Generator& generator, const std::shared_ptr<Device>& device) {
  return init_bias(weight_shape, weight_shape[0], generator, device);
}

Tensor init_bias(const Dims& weight_shape, std::int64_t extent, Generator& generator,
                 const std::shared_ptr<Device>& device) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in(weight_shape)));
  return Tensor::rand({extent}, generator, device, static_cast<float>(-bound), static_cast<float>(bound));
}

Tensor init_fan_out_normal(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device) {
  const auto count = static_cast<std::size_t>(shape.product());
  if (count < 16) {
    throw UsageError("init_fan_out_normal: expected at least 16 elements, got shape " + shape.to_string());
  }
  const double fan_out = static_cast<double>(shape[0] * (fan_in(shape) / shape[1]));
  const double deviation = std::sqrt(2.0) / std::sqrt(fan_out);
  std::vector<float> values(count);
  generator.normal(values, 0.0, deviation);
  return Tensor::from_data(values, shape, device);
}

namespace init {
namespace {

double fan_of(const Dims& shape, Fan fan) {
  const std::int64_t inputs = fan_in(shape);
  const std::int64_t count = fan == Fan::in ? inputs : shape[0] * (shape[1] == 0 ? 0 : inputs / shape[1]);
  return static_cast<double>(count);
}

void require_size(std::string_view name, std::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError("init::" + std::string(name) + ": expected " + std::string(what) + " of at least 0, got " +
                   std::to_string(value));
}

double xavier_deviation(std::string_view name, const Dims& shape, double gain) {
  require_size(name, "a gain", gain);
  return gain * std::sqrt(2.0 / (fan_of(shape, Fan::in) + fan_of(shape, Fan::out)));
}

double kaiming_deviation(const Dims& shape, const KaimingOptions& options) {
  return gain_of(options.nonlinearity, options.negative_slope) / std::sqrt(fan_of(shape, options.fan));
}

}  // namespace

void constant_(const Tensor& tensor, double value) {
  const NoGrad no_grad;
  Tensor(tensor).fill(value);
}

void zeros_(const Tensor& tensor) { constant_(tensor, 0); }
void ones_(const Tensor& tensor) { constant_(tensor, 1); }

void uniform_(const Tensor& tensor, double low, double high, Generator& generator) {
  const NoGrad no_grad;
  Tensor(tensor).fill_uniform(generator, low, high);
}

void normal_(const Tensor& tensor, double mean, double deviation, Generator& generator) {
  require_size("normal_", "a deviation", deviation);
  const NoGrad no_grad;
  Tensor(tensor).fill_normal(generator, mean, deviation);
}

// The order of the roundings below is PyTorch's.
void xavier_uniform_(const Tensor& weight, double gain, Generator& generator) {
  const double bound = std::sqrt(3.0) * xavier_deviation("xavier_uniform_", weight.shape(), gain);
  uniform_(weight, -bound, bound, generator);
}

void xavier_normal_(const Tensor& weight, double gain, Generator& generator) {
  normal_(weight, 0, xavier_deviation("xavier_normal_", weight.shape(), gain), generator);
}

void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options, Generator& generator) {
  const double bound = std::sqrt(3.0) * kaiming_deviation(weight.shape(), options);
  uniform_(weight, -bound, bound, generator);
}

void kaiming_normal_(const Tensor& weight, const KaimingOptions& options, Generator& generator) {
  normal_(weight, 0, kaiming_deviation(weight.shape(), options), generator);
}

double gain_of(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2.0 / (1 + negative_slope * negative_slope));
    case Nonlinearity::selu:
      return 3.0 / 4;
    default:
      return 1;
  }
}

}  // namespace init

}  // namespace dtrain
