#include "models/vision/resnet.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/nn/init.h"

namespace dtrain {
namespace {

constexpr std::array<std::int64_t, 4> kWidths = {64, 128, 256, 512};
constexpr std::array<ResNetDepth, 5> kDepths = {{{"resnet18-imagenet", {2, 2, 2, 2}},
                                                 {"resnet34", {3, 4, 6, 3}},
                                                 {"resnet50", {3, 4, 6, 3}, true},
                                                 {"resnet101", {3, 4, 23, 3}, true},
                                                 {"resnet152", {3, 8, 36, 3}, true}}};

std::shared_ptr<Conv2d> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                  bool bias, Generator& generator, const std::shared_ptr<Device>& device,
                                  std::int64_t dilation = 1) {
  Conv2dOptions options;
  options.geometry.stride_h = options.geometry.stride_w = stride;
  options.geometry.pad_h = options.geometry.pad_w = dilation * (kernel / 2);
  options.geometry.dilation_h = options.geometry.dilation_w = dilation;
  options.bias = bias;
  return std::make_shared<Conv2d>(in, out, kernel, generator, device, options);
}

/// Appends the blocks of `stage`, each a part.
void add_blocks(const std::string& name, const Sequential& stage, std::vector<LayerUnit>& chain) {
  for (const auto& [number, block] : stage.children())
    chain.push_back(layer_unit(fmt::format("{}.{}", name, number), block));
}

/// Only carries names: "downsample.0" and "downsample.1".
class Downsample : public Module {
 public:
  Downsample(std::shared_ptr<Conv2d> conv, std::shared_ptr<BatchNorm2d> norm) {
    conv_ = add_module("0", std::move(conv));
    norm_ = add_module("1", std::move(norm));
  }
  Tensor forward(const Tensor& x) override { return (*norm_)((*conv_)(x)); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

}  // namespace

std::vector<LayerUnit> ResNet18::chain() const {
  std::vector<LayerUnit> chain;
  chain.push_back({{{"0", conv_}, {"1", norm_}}, [conv = conv_, norm = norm_](const Tensor& x) {
                     return norm->forward((*conv)(x), Activation::relu);
                   }});
  for (std::size_t i = 0; i < stages_.size(); ++i)
    add_blocks(fmt::format("resnet_block{}", i + 1), *stages_[i], chain);
  chain.push_back({{{"fc.1", fc_}},
                   [fc = fc_](const Tensor& x) { return (*fc)(flatten(adaptive_avg_pool2d(x, 1, 1))); }});
  return chain;
}

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, bool project,
                       Generator& generator, const std::shared_ptr<Device>& device) {
  mark_block();
  conv1_ = add_module("conv1", make_conv(in, out, 3, stride, true, generator, device));
  conv2_ = add_module("conv2", make_conv(out, out, 3, 1, true, generator, device));
  if (project) conv3_ = add_module("conv3", make_conv(in, out, 1, stride, true, generator, device));
  bn1_ = add_module("bn1", std::make_shared<BatchNorm2d>(out, device));
  bn2_ = add_module("bn2", std::make_shared<BatchNorm2d>(out, device));
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor middle = bn1_->forward((*conv1_)(x), Activation::relu);
  const Tensor shortcut = conv3_ ? (*conv3_)(x) : x;
  return bn2_->forward((*conv2_)(middle), Activation::relu, shortcut);
}

ResNet18::ResNet18(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device) {
  conv_ = add_module("0", make_conv(input.channels, kWidths[0], 3, 1, true, generator, device));
  norm_ = add_module("1", std::make_shared<BatchNorm2d>(kWidths[0], device));
  std::int64_t in = kWidths[0];
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    const std::int64_t out = kWidths[i], stride = i == 0 ? 1 : 2;
    const auto first = std::make_shared<BasicBlock>(in, out, stride, i != 0, generator, device);
    const auto second = std::make_shared<BasicBlock>(out, out, 1, false, generator, device);
    stages_.push_back(
        add_module(fmt::format("resnet_block{}", i + 1),
                   std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{first, second})));
    in = out;
  }
  fc_ = std::make_shared<Linear>(in, input.classes, generator, device);
  add_module("fc", std::make_shared<Sequential>(
                       std::vector<std::shared_ptr<Module>>{std::make_shared<Flatten>(), fc_}));
}

Tensor ResNet18::forward(const Tensor& x) {
  Tensor y = norm_->forward((*conv_)(x), Activation::relu);  // [N, C, H, W] → [N, 64, H, W]
  for (const auto& stage : stages_) y = (*stage)(y);         // → [N, 512, ⌈H/8⌉, ⌈W/8⌉]
  return (*fc_)(flatten(adaptive_avg_pool2d(y, 1, 1)));      // → [N, classes]
}

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator,
                       const std::shared_ptr<Device>& device, std::int64_t dilation) {
  mark_block();
  const std::int64_t out = width * kExpansion;
  // PyTorch draws the shortcut first and registers it last.
  if (stride != 1 || in != out) {
    shortcut_ = make_conv(in, out, 1, stride, false, generator, device);
    shortcut_norm_ = std::make_shared<BatchNorm2d>(out, device);
  }
  conv1_ = add_module("conv1", make_conv(in, width, 1, 1, false, generator, device));
  bn1_ = add_module("bn1", std::make_shared<BatchNorm2d>(width, device));
  conv2_ = add_module("conv2", make_conv(width, width, 3, stride, false, generator, device, dilation));
  bn2_ = add_module("bn2", std::make_shared<BatchNorm2d>(width, device));
  conv3_ = add_module("conv3", make_conv(width, out, 1, 1, false, generator, device));
  bn3_ = add_module("bn3", std::make_shared<BatchNorm2d>(out, device));
  if (shortcut_) add_module("downsample", std::make_shared<Downsample>(shortcut_, shortcut_norm_));
}

Tensor Bottleneck::forward(const Tensor& x) {
  Tensor y = bn1_->forward((*conv1_)(x), Activation::relu);
  y = bn2_->forward((*conv2_)(y), Activation::relu);
  const Tensor shortcut = shortcut_ ? (*shortcut_norm_)((*shortcut_)(x)) : x;
  return bn3_->forward((*conv3_)(y), Activation::relu, shortcut);
}

PlainBlock::PlainBlock(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator,
                       const std::shared_ptr<Device>& device) {
  mark_block();
  // PyTorch draws the shortcut first and registers it last.
  if (stride != 1 || in != width) {
    shortcut_ = make_conv(in, width, 1, stride, false, generator, device);
    shortcut_norm_ = std::make_shared<BatchNorm2d>(width, device);
  }
  conv1_ = add_module("conv1", make_conv(in, width, 3, stride, false, generator, device));
  bn1_ = add_module("bn1", std::make_shared<BatchNorm2d>(width, device));
  conv2_ = add_module("conv2", make_conv(width, width, 3, 1, false, generator, device));
  bn2_ = add_module("bn2", std::make_shared<BatchNorm2d>(width, device));
  if (shortcut_) add_module("downsample", std::make_shared<Downsample>(shortcut_, shortcut_norm_));
}

Tensor PlainBlock::forward(const Tensor& x) {
  const Tensor y = bn1_->forward((*conv1_)(x), Activation::relu);
  const Tensor shortcut = shortcut_ ? (*shortcut_norm_)((*shortcut_)(x)) : x;
  return bn2_->forward((*conv2_)(y), Activation::relu, shortcut);
}

int zero_last_norms(Module& network) {
  int blocks = 0;
  network.visit([&](Module& module) {
    const bool is_bottleneck = dynamic_cast<Bottleneck*>(&module) != nullptr;
    if (!is_bottleneck && dynamic_cast<PlainBlock*>(&module) == nullptr) return;
    const std::string last = is_bottleneck ? "bn3" : "bn2";
    for (const auto& [name, child] : module.children())
      if (name == last) init::zeros_(child->own_parameters().front().second);  // its weight
    ++blocks;
  });
  return blocks;
}

const ResNetDepth* resnet_depth(std::string_view name) noexcept {
  const auto found = std::ranges::find(kDepths, name, &ResNetDepth::name);
  return found == kDepths.end() ? nullptr : &*found;
}

ResNet::ResNet(const ResNetDepth& depth, const NetworkInput& input, Generator& generator,
               const std::shared_ptr<Device>& device, LastStages last_stages) {
  Conv2dOptions stem;
  stem.geometry.stride_h = stem.geometry.stride_w = 2;
  stem.geometry.pad_h = stem.geometry.pad_w = 3;
  stem.bias = false;
  conv1_ =
      add_module("conv1", std::make_shared<Conv2d>(input.channels, kWidths[0], 7, generator, device, stem));
  bn1_ = add_module("bn1", std::make_shared<BatchNorm2d>(kWidths[0], device));
  std::int64_t in = kWidths[0], dilation = 1;
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    std::vector<std::shared_ptr<Module>> blocks;
    const bool dilates = i >= 2 && last_stages == LastStages::dilated;
    const std::int64_t first_dilation = dilation;
    if (dilates) dilation *= 2;
    for (int block = 0; block < depth.blocks[i]; ++block) {
      const std::int64_t width = kWidths[i], stride = i != 0 && block == 0 && !dilates ? 2 : 1;
      if (depth.bottlenecks) {
        blocks.push_back(std::make_shared<Bottleneck>(in, width, stride, generator, device,
                                                      block == 0 ? first_dilation : dilation));
        in = width * Bottleneck::kExpansion;
      } else {
        blocks.push_back(std::make_shared<PlainBlock>(in, width, stride, generator, device));
        in = width;
      }
    }
    layers_.push_back(
        add_module(fmt::format("layer{}", i + 1), std::make_shared<Sequential>(std::move(blocks))));
  }
  fc_ = add_module("fc", std::make_shared<Linear>(in, input.classes, generator, device));
  const NoGrad no_grad;
  for (auto& [name, tensor] : named_parameters()) {
    if (tensor.rank() == 4) tensor.copy_from(init_fan_out_normal(tensor.shape(), generator, device));
  }
}

std::vector<LayerUnit> ResNet::chain() const {
  std::vector<LayerUnit> chain;
  chain.push_back({{{"conv1", conv1_}, {"bn1", bn1_}}, [conv = conv1_, norm = bn1_](const Tensor& x) {
                     MaxPool2d pool(3, 2, 1);
                     return pool(norm->forward((*conv)(x), Activation::relu));
                   }});
  for (std::size_t i = 0; i < layers_.size(); ++i)
    add_blocks(fmt::format("layer{}", i + 1), *layers_[i], chain);
  chain.push_back(
      {{{"fc", fc_}}, [fc = fc_](const Tensor& x) { return (*fc)(flatten(adaptive_avg_pool2d(x, 1, 1))); }});
  return chain;
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = pool_(bn1_->forward((*conv1_)(x), Activation::relu));  // [N, C, 224, 224] → [N, 64, 56, 56]
  for (const auto& layer : layers_) y = (*layer)(y);                // → [N, 512 or 2048, 7, 7]
  return (*fc_)(flatten(adaptive_avg_pool2d(y, 1, 1)));             // → [N, classes]
}

}  // namespace dtrain
