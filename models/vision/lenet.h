// LeNet-5 after LeCun et al. 1998, "Gradient-based learning applied to document recognition", in the widths
// commonly trained on MNIST-like sets: 20 and 50 maps, 128 hidden units, ReLU, average pooling.
#pragma once

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain {

class LeNet : public Module, public Chained {
 public:
  LeNet(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace dtrain
