// ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s"), torchvision's convnext_tiny with its names and
// shapes.
#pragma once

#include <vector>

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// Images [N, channels, H, W] with sides of at least 32 → logits [N, classes]: a stem of 4 × 4 patches, four
/// stages of 3, 3, 9 and 3 blocks with 96, 192, 384 and 768 channels, the mean over places. In training whole
/// branches of a sample are dropped (stochastic depth, Huang et al. 2016), from none in the first block to
/// one in ten in the last. Initial weights are normal with deviation 0.02; biases 0.
class ConvNeXt : public Module, public Chained {
 public:
  /// Throws UsageError for smaller images.
  ConvNeXt(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override { return through(chain_, x); }
  std::vector<LayerUnit> chain() const override { return chain_; }

 private:
  std::vector<LayerUnit> chain_;
};

}  // namespace dtrain
