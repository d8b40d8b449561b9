#include "models/vision/video_resnet.h"

#include <fmt/format.h>

#include "runtime/nn/init.h"

namespace dtrain {
namespace {

constexpr std::array<std::int64_t, 4> kWidths = {64, 128, 256, 512};
constexpr int kBlocks = 2;
constexpr double kHeadDeviation = 0.01;

std::shared_ptr<Conv3d> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                  Generator& generator, const std::shared_ptr<Device>& device) {
  return std::make_shared<Conv3d>(
      in, out, Conv3dSettings{.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false},
      generator, device);
}

/// Only carries names: "0" and "1".
std::shared_ptr<Sequential> named(const std::shared_ptr<Conv3d>& conv,
                                  const std::shared_ptr<BatchNorm3d>& norm) {
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{conv, norm});
}

/// relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)), 3 × 3 × 3 each.
class VideoBlock final : public Module {
 public:
  VideoBlock(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator,
             const std::shared_ptr<Device>& device) {
    mark_block();
    // PyTorch draws the shortcut first and registers it last.
    if (stride != 1 || in != width) {
      shortcut_ = make_conv(in, width, 1, stride, generator, device);
      shortcut_norm_ = std::make_shared<BatchNorm3d>(width, device);
    }
    conv1_ = make_conv(in, width, 3, stride, generator, device);
    bn1_ = std::make_shared<BatchNorm3d>(width, device);
    add_module("conv1", named(conv1_, bn1_));
    conv2_ = make_conv(width, width, 3, 1, generator, device);
    bn2_ = std::make_shared<BatchNorm3d>(width, device);
    add_module("conv2", named(conv2_, bn2_));
    if (shortcut_) add_module("downsample", named(shortcut_, shortcut_norm_));
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn1_->forward((*conv1_)(x), Activation::relu);
    const Tensor shortcut = shortcut_ ? (*shortcut_norm_)((*shortcut_)(x)) : x;
    return bn2_->forward((*conv2_)(y), Activation::relu, shortcut);
  }

 private:
  std::shared_ptr<Conv3d> conv1_, conv2_, shortcut_;
  std::shared_ptr<BatchNorm3d> bn1_, bn2_, shortcut_norm_;
};

/// [N, C, T, H, W] → [N, C]
Tensor mean_of_places(const Tensor& x) { return mean(x, {2, 3, 4}); }

}  // namespace

VideoResNet::VideoResNet(const NetworkInput& input, Generator& generator,
                         const std::shared_ptr<Device>& device) {
  conv_ = std::make_shared<Conv3d>(
      input.channels, kWidths[0],
      Conv3dSettings{.kernel = {3, 7, 7}, .stride = {1, 2, 2}, .padding = {1, 3, 3}, .bias = false},
      generator, device);
  norm_ = std::make_shared<BatchNorm3d>(kWidths[0], device);
  add_module("stem", named(conv_, norm_));
  std::int64_t in = kWidths[0];
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    std::vector<std::shared_ptr<Module>> blocks;
    for (int block = 0; block < kBlocks; ++block) {
      blocks.push_back(
          std::make_shared<VideoBlock>(in, kWidths[i], i != 0 && block == 0 ? 2 : 1, generator, device));
      in = kWidths[i];
    }
    layers_.push_back(
        add_module(fmt::format("layer{}", i + 1), std::make_shared<Sequential>(std::move(blocks))));
  }
  fc_ = add_module("fc", std::make_shared<Linear>(in, input.classes, generator, device));
  const NoGrad no_grad;
  for (auto& [name, tensor] : named_parameters()) {
    if (tensor.rank() == 5) tensor.copy_from(init_fan_out_normal(tensor.shape(), generator, device));
  }
  init::normal_(fc_->weight(), 0, kHeadDeviation, generator);
  init::zeros_(fc_->bias());
}

Tensor VideoResNet::forward(const Tensor& x) {
  const Tensor frames_behind_channels = x.permute({0, 2, 1, 3, 4});  // [N, T, C, H, W] → [N, C, T, H, W]
  Tensor y = norm_->forward((*conv_)(frames_behind_channels), Activation::relu);
  for (const auto& layer : layers_) y = (*layer)(y);  // → [N, 512, T / 8, H / 16, W / 16], rounded up
  return (*fc_)(mean_of_places(y));                   // → [N, classes]
}

std::vector<LayerUnit> VideoResNet::chain() const {
  std::vector<LayerUnit> chain;
  chain.push_back({{{"stem.0", conv_}, {"stem.1", norm_}}, [conv = conv_, norm = norm_](const Tensor& x) {
                     return norm->forward((*conv)(x.permute({0, 2, 1, 3, 4})), Activation::relu);
                   }});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (const auto& [number, block] : layers_[i]->children())
      chain.push_back(layer_unit(fmt::format("layer{}.{}", i + 1, number), block));
  }
  chain.push_back({{{"fc", fc_}}, [fc = fc_](const Tensor& x) { return (*fc)(mean_of_places(x)); }});
  return chain;
}

}  // namespace dtrain
