#include "models/tasks/regression.h"

#include <fmt/format.h>

#include <cmath>

#include "models/vision/network.h"
#include "runtime/base/error.h"

namespace dtrain {
std::unique_ptr<Module> Regression::build(std::span<const Field> fields, Generator& generator,
                                          const std::shared_ptr<Device>& device) const {
  const Field* target = find_field(fields, kTargetField);
  if (target == nullptr || target->dtype != DType::f32 || target->shape.rank() > 1) {
    throw UsageError(fmt::format(
        "{}: expected samples with a field y (float32 [M] or []), got {}; choose the task classification for "
        "labels",
        model_, describe(fields)));
  }
  const std::int64_t outputs = target->shape.product();
  NetworkInput input = network_input(dtrain::input_field(*this, fields), outputs);
  input.output_mean = target->mean;
  input.output_deviation = target->deviation;
  return make_network(model_, input, generator, device);
}

Tensor Regression::loss(const Tensors& outputs, const BatchTensors& batch) const {
  return mse_loss(outputs.front(), batch[kTargetField].reshape(outputs.front().shape()));
}

Evaluation Regression::evaluation(std::span<const double> sums, std::int64_t /*samples*/) const {
  const double loss = sums[0] / sums[1];
  return {.loss = loss, .metrics = {{"rmse", std::sqrt(loss)}}};
}

}  // namespace dtrain
