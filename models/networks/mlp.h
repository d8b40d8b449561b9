// A two-layer perceptron: the smallest network that learns Fashion-MNIST.
#pragma once

#include "models/networks/network.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// flatten → fc1 (→ 256, ReLU) → fc2 (→ classes).
class Mlp : public Module {
 public:
  Mlp(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace dtrain
