// Inception-ResNet-v2 (Szegedy et al. 2016, "Inception-v4, Inception-ResNet and the impact of residual
// connections on learning"), with timm's names and shapes.
#pragma once

#include <vector>

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// Images [N, channels, H, W] with H and W at least 75, 299 as published → logits [N, classes]. A stem, three
/// kinds of residual blocks (10 of 35 × 35 pixels, 20 of 17 × 17, 10 of 8 × 8) with two reductions between
/// them, the mean over places. 55,843,464 parameters for 1000 classes of RGB images.
class InceptionResNetV2 : public Module, public Chained {
 public:
  /// Throws UsageError for smaller images.
  InceptionResNetV2(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override { return through(chain_, x); }
  std::vector<LayerUnit> chain() const override { return chain_; }

 private:
  std::vector<LayerUnit> chain_;
};

}  // namespace dtrain
