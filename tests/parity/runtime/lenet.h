// The network that golden.safetensors was recorded with.
#pragma once

#include "runtime/nn/layers.h"
#include "tests/support/golden.h"

namespace dtrain::test {

/// conv 1→20 k3, pool, conv 20→50 k5, pool, 800→128, 128→10
class LeNet : public Module {
 public:
  /// `fused`: convolution, relu and pooling in one operation.
  LeNet(Generator& generator, const std::shared_ptr<Device>& device, bool fused)
      : conv1_(add_module("conv1", std::make_shared<Conv2d>(1, 20, 3, generator, device, conv(fused)))),
        conv2_(add_module("conv2", std::make_shared<Conv2d>(20, 50, 5, generator, device, conv(fused)))),
        fc1_(add_module("fc1", std::make_shared<Linear>(800, 128, generator, device,
                                                        LinearOptions{true, Activation::relu}))),
        fc2_(add_module("fc2", std::make_shared<Linear>(128, 10, generator, device))),
        fused_(fused) {}

  Tensor forward(const Tensor& x) override {
    const Tensor features =
        fused_ ? (*conv2_)((*conv1_)(x)) : avg_pool2d((*conv2_)(avg_pool2d((*conv1_)(x), 2)), 2);
    return (*fc2_)((*fc1_)(flatten(features)));
  }

 private:
  static Conv2dOptions conv(bool fused) {
    Conv2dOptions options;
    options.activation = Activation::relu;
    if (fused) options.pool = Pool2dGeometry{PoolKind::avg};
    return options;
  }

  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<Linear> fc1_, fc2_;
  bool fused_;
};

}  // namespace dtrain::test
