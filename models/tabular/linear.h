// One linear layer: logistic and linear regression, the first network of every course.
#pragma once

#include "models/vision/network.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// flatten → fc (→ classes).
class LinearNetwork : public Module {
 public:
  LinearNetwork(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Linear> fc_;
};

}  // namespace dtrain
