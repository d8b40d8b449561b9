#include "models/tabular/linear.h"

namespace dtrain {

LinearNetwork::LinearNetwork(const NetworkInput& input, Generator& generator,
                             const std::shared_ptr<Device>& device) {
  const std::int64_t values = input.channels * input.height * input.width;
  fc_ = add_module("fc", std::make_shared<Linear>(values, input.classes, generator, device));
}

Tensor LinearNetwork::forward(const Tensor& x) { return (*fc_)(flatten(x)); }  // [N, …] → [N, classes]

}  // namespace dtrain
