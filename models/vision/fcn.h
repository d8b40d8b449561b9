// Fully convolutional networks for semantic segmentation (Long et al. 2015), with torchvision's names and
// shapes.
#pragma once

#include <memory>
#include <vector>

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// torchvision.models.segmentation.fcn_resnet50 ("fcn-resnet50") without its auxiliary classifier: ResNet-50
/// whose last two stages are dilated ("backbone"), and a head of two convolutions with dropout between
/// ("classifier"), interpolated to the size it was built for. Images [N, channels, H, W] → logits [N,
/// classes, input.height, input.width]. Initial weights are torchvision's.
class FcnResNet50 : public Module, public Chained {
 public:
  FcnResNet50(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::vector<LayerUnit> backbone_;
  std::shared_ptr<Conv2d> conv_, out_;
  std::shared_ptr<BatchNorm2d> norm_;
  std::shared_ptr<Dropout> dropout_;
  std::int64_t height_, width_;
};

}  // namespace dtrain
