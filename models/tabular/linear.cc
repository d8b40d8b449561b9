#include "models/tabular/linear.h"

namespace dtrain {

LinearNetwork::LinearNetwork(const NetworkInput& input, Generator& generator,
                             const std::shared_ptr<Device>& device) {
  const std::int64_t values = input.channels * input.height * input.width;
  if (!input.fill.empty()) fill_ = add_module("fill", std::make_shared<Impute>(input.fill, device));
  if (!input.mean.empty())
    scale_ = add_module("scale", std::make_shared<Standardize>(input.mean, input.deviation, device));
  fc_ = add_module("fc", std::make_shared<Linear>(values, input.classes, generator, device));
  if (!input.output_mean.empty()) {
    units_ = add_module("units",
                        std::make_shared<Unstandardize>(input.output_mean, input.output_deviation, device));
  }
}

Tensor LinearNetwork::forward(const Tensor& x) {  // [N, …] → [N, classes]
  Tensor values = flatten(x);
  if (fill_) values = (*fill_)(values);
  if (scale_) values = (*scale_)(values);
  const Tensor outputs = (*fc_)(values);
  return units_ ? (*units_)(outputs) : outputs;
}

}  // namespace dtrain
