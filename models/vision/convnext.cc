#include "models/vision/convnext.h"

#include <fmt/format.h>

#include <array>

#include "runtime/base/error.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/norms.h"

namespace dtrain {
namespace {

constexpr std::array<std::int64_t, 4> kWidths = {96, 192, 384, 768};
constexpr std::array<int, 4> kBlocks = {3, 3, 9, 3};
constexpr double kEps = 1e-6, kDeviation = 0.02, kFirstScale = 1e-6, kMostDropped = 0.1;
constexpr std::int64_t kLeastSide = 32;

/// Pixel by pixel [N, H, W, C] and back. In memory a convolution's result is pixel by pixel already.
Tensor by_pixel(const Tensor& x) { return x.permute({0, 2, 3, 1}); }
Tensor by_channel(const Tensor& x) { return x.permute({0, 3, 1, 2}); }

/// Of the channels of each pixel of [N, C, H, W].
class ChannelNorm final : public LayerNorm {
 public:
  ChannelNorm(std::int64_t width, const std::shared_ptr<Device>& device)
      : LayerNorm(Dims{width}, device, kEps) {}
  Tensor forward(const Tensor& x) override { return by_channel(LayerNorm::forward(by_pixel(x))); }
};

/// x + scale · block(x), and for some samples in training x alone.
class ConvNeXtBlock final : public Module {
 public:
  ConvNeXtBlock(std::int64_t width, double dropped, const std::shared_ptr<DropoutKey>& key,
                Generator& generator, const std::shared_ptr<Device>& device) {
    mark_block();
    scale_ = add_parameter("layer_scale", Tensor::full({width, 1, 1}, kFirstScale, device));
    Conv2dOptions depthwise;
    depthwise.geometry.pad_h = depthwise.geometry.pad_w = 3;
    depthwise.geometry.groups = width;
    conv_ = std::make_shared<Conv2d>(width, width, 7, generator, device, depthwise);
    norm_ = std::make_shared<LayerNorm>(Dims{width}, device, kEps);
    up_ = std::make_shared<Linear>(width, 4 * width, generator, device);
    down_ = std::make_shared<Linear>(4 * width, width, generator, device);
    // Between them are permutations and gelu, which have numbers but no names.
    add_module("block", std::make_shared<Sequential>(
                            NamedModules{{"0", conv_}, {"2", norm_}, {"3", up_}, {"5", down_}}));
    if (dropped > 0) kept_ = add_module("stochastic_depth", std::make_shared<Dropout>(dropped, key));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor inner = (*down_)(gelu((*up_)((*norm_)(by_pixel((*conv_)(x))))));
    Tensor branch = mul(by_channel(inner), scale_);
    if (kept_ && is_training())
      branch = mul(branch, (*kept_)(Tensor::ones({x.size(0), 1, 1, 1}, x.shared_device(), branch.dtype())));
    return add(branch, x);
  }

 private:
  Tensor scale_;
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> up_, down_;
  std::shared_ptr<Dropout> kept_;
};

std::shared_ptr<Conv2d> patches(std::int64_t in, std::int64_t out, std::int64_t side, Generator& generator,
                                const std::shared_ptr<Device>& device) {
  Conv2dOptions options;
  options.geometry.stride_h = options.geometry.stride_w = side;
  return std::make_shared<Conv2d>(in, out, side, generator, device, options);
}

std::shared_ptr<Sequential> in_turn(const std::vector<std::shared_ptr<Module>>& modules) {
  return std::make_shared<Sequential>(modules);
}

}  // namespace

ConvNeXt::ConvNeXt(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device) {
  if (input.height < kLeastSide || input.width < kLeastSide) {
    throw UsageError(fmt::format("convnext-tiny: expected images of at least {} x {}, got {} x {}",
                                 kLeastSide, kLeastSide, input.height, input.width));
  }
  Generator for_masks = generator;  // a copy, so that the weights do not depend on stochastic depth
  const auto key = std::make_shared<DropoutKey>(for_masks.next64(), device);
  std::vector<std::shared_ptr<Module>> features;
  const auto append = [&](const std::shared_ptr<Module>& module) {
    chain_.push_back(layer_unit(fmt::format("features.{}", features.size()), module));
    features.push_back(module);
  };
  append(in_turn({patches(input.channels, kWidths[0], 4, generator, device),
                  std::make_shared<ChannelNorm>(kWidths[0], device)}));
  int number = 0;
  for (std::size_t stage = 0; stage < kWidths.size(); ++stage) {
    const std::int64_t width = kWidths[stage];
    std::vector<std::shared_ptr<Module>> blocks;
    for (int i = 0; i < kBlocks[stage]; ++i, ++number) {
      constexpr int kLast = kBlocks[0] + kBlocks[1] + kBlocks[2] + kBlocks[3] - 1;
      blocks.push_back(
          std::make_shared<ConvNeXtBlock>(width, kMostDropped * number / kLast, key, generator, device));
      chain_.push_back(layer_unit(fmt::format("features.{}.{}", features.size(), i), blocks.back()));
    }
    features.push_back(in_turn(blocks));
    if (stage + 1 < kWidths.size()) {
      append(in_turn({std::make_shared<ChannelNorm>(width, device),
                      patches(width, kWidths[stage + 1], 2, generator, device)}));
    }
  }
  add_module("features", in_turn(features));
  const auto norm = std::make_shared<ChannelNorm>(kWidths.back(), device);
  const auto head = std::make_shared<Linear>(kWidths.back(), input.classes, generator, device);
  add_module("classifier", std::make_shared<Sequential>(NamedModules{{"0", norm}, {"2", head}}));
  chain_.push_back({{{"classifier.0", norm}, {"classifier.2", head}}, [=](const Tensor& x) {
                      return (*head)(flatten((*norm)(adaptive_avg_pool2d(x, 1, 1))));
                    }});
  const NoGrad no_grad;
  for (auto& [name, tensor] : named_parameters()) {
    if (tensor.rank() == 4 || tensor.rank() == 2) tensor.fill_normal(generator, 0, kDeviation);
    if (name.ends_with(".bias")) tensor.fill(0);
  }
}

}  // namespace dtrain
