// Residual networks for clips after Tran et al. 2018, "A closer look at spatiotemporal convolutions for
// action recognition", with torchvision's names and shapes.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/convolutions.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// torchvision.models.video.r3d_18 ("r3d-18"): a stem of 3 × 7 × 7, four stages of two blocks, each of two
/// convolutions of 3 × 3 × 3, the mean over places and frames. Clips [N, T, channels, H, W], as samples are
/// (torchvision's networks take [N, channels, T, H, W]) → logits [N, classes]. Initial weights are
/// torchvision's, too.
class VideoResNet : public Module, public Chained {
 public:
  VideoResNet(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::shared_ptr<Conv3d> conv_;
  std::shared_ptr<BatchNorm3d> norm_;
  std::vector<std::shared_ptr<Sequential>> layers_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace dtrain
