// Residual networks after He et al. 2016, "Deep residual learning for image recognition": an 18-layer variant
// for small images, and those of torchvision, with its names and shapes.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)); convolutions with bias, the shortcut is conv3 (1 × 1)
/// where the width or the stride changes.
class BasicBlock : public Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, bool project, Generator& generator,
             const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_;
};

/// The variant for images of about 28 × 28: a 3 × 3 stem of stride 1, no max pooling. Stages of 64, 128, 256
/// and 512 channels, two blocks each. Modules are named "0", "1", "resnet_block1" … "resnet_block4", "fc.1".
class ResNet18 : public Module, public Chained {
 public:
  ResNet18(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
  std::vector<std::shared_ptr<Sequential>> stages_;
  std::shared_ptr<Linear> fc_;
};

/// The block of torchvision's networks of 50 layers and more:
/// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + shortcut(x)): 1 × 1, 3 × 3 (with the stride) and
/// 1 × 1 to four times `width`; no biases.
class Bottleneck : public Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  /// `dilation` is of the 3 × 3 convolution.
  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator,
             const std::shared_ptr<Device>& device, std::int64_t dilation = 1);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_, shortcut_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_, bn3_, shortcut_norm_;
};

/// The block of torchvision's smaller networks: relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), 3 × 3
/// each; no biases.
class PlainBlock : public Module {
 public:
  static constexpr std::int64_t kExpansion = 1;

  PlainBlock(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator,
             const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, shortcut_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_, shortcut_norm_;
};

/// How deep one of torchvision's networks is.
struct ResNetDepth {
  std::string_view name;
  std::array<int, 4> blocks;  ///< of the stages with 64, 128, 256 and 512 channels
  bool bottlenecks = false;
};

/// torchvision.models.resnet18 ("resnet18-imagenet"), resnet34, resnet50, resnet101 and resnet152; null for
/// another name.
const ResNetDepth* resnet_depth(std::string_view name) noexcept;

/// Where the last two stages look further apart in place of making images smaller, as networks that label
/// pixels do (torchvision's replace_stride_with_dilation = [False, True, True]); bottlenecks only.
enum class LastStages { strided, dilated };

/// torchvision's zero_init_residual (Goyal et al. 2017): the last norm of each block of a torchvision network
/// begins at 0, so that the block gives its input at first. Returns how many blocks there are; 0 in other
/// networks.
int zero_last_norms(Module& network);

/// A 7 × 7 stem of stride 2, max pooling, four stages of blocks, the mean over places; initial weights are
/// torchvision's too.
class ResNet : public Module, public Chained {
 public:
  ResNet(const ResNetDepth& depth, const NetworkInput& input, Generator& generator,
         const std::shared_ptr<Device>& device, LastStages last_stages = LastStages::strided);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  MaxPool2d pool_{3, 2, 1};
  std::vector<std::shared_ptr<Sequential>> layers_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace dtrain
