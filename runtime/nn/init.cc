#include "runtime/nn/init.h"

#include <cmath>
#include <span>
#include <vector>

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

}  // namespace dtrain
