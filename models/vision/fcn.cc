#include "models/vision/fcn.h"

#include "models/vision/resnet.h"
#include "runtime/autograd/ops/resampling.h"
#include "runtime/base/error.h"
#include "runtime/nn/containers.h"

namespace dtrain {
namespace {

constexpr std::int64_t kFeatures = 2048, kBetween = kFeatures / 4, kImageNetClasses = 1000;
constexpr double kDropped = 0.1;

/// Only carries names: those of a ResNet but its last layer.
class Backbone final : public Module {
 public:
  explicit Backbone(const ResNet& network) {
    for (const auto& [name, module] : network.children())
      if (name != "fc") add_module(name, module);
  }
  Tensor forward(const Tensor& x) override {
    static_cast<void>(x);
    throw UsageError("backbone: expected to be called part by part");
  }
};

}  // namespace

FcnResNet50::FcnResNet50(const NetworkInput& input, Generator& generator,
                         const std::shared_ptr<Device>& device)
    : height_(input.height), width_(input.width) {
  Generator for_masks = generator;  // a copy, so that the weights do not depend on dropout
  // As torchvision: with the layer for ImageNet's classes, which is drawn and then left out.
  const ResNet network(*resnet_depth("resnet50"), {.channels = input.channels, .classes = kImageNetClasses},
                       generator, device, LastStages::dilated);
  add_module("backbone", std::make_shared<Backbone>(network));
  backbone_ = network.chain();
  backbone_.pop_back();
  for (LayerUnit& unit : backbone_) {
    for (auto& [name, module] : unit.modules) name = "backbone." + name;
  }
  conv_ = std::make_shared<Conv2d>(
      kFeatures, kBetween, Conv2dSettings{.kernel = 3, .padding = 1, .bias = false}, generator, device);
  norm_ = std::make_shared<BatchNorm2d>(kBetween, device);
  dropout_ = std::make_shared<Dropout>(kDropped, std::make_shared<DropoutKey>(for_masks.next64(), device));
  out_ = std::make_shared<Conv2d>(kBetween, input.classes, 1, generator, device);
  // Between them is a ReLU, which has a number but no name.
  add_module("classifier", std::make_shared<Sequential>(
                               NamedModules{{"0", conv_}, {"1", norm_}, {"3", dropout_}, {"4", out_}}));
}

Tensor FcnResNet50::forward(const Tensor& x) { return through(chain(), x); }

std::vector<LayerUnit> FcnResNet50::chain() const {
  std::vector<LayerUnit> chain = backbone_;
  chain.push_back(
      {{{"classifier.0", conv_}, {"classifier.1", norm_}}, [conv = conv_, norm = norm_](const Tensor& x) {
         return norm->forward((*conv)(x), Activation::relu);
       }});
  chain.push_back({{{"classifier.3", dropout_}, {"classifier.4", out_}},
                   [dropout = dropout_, out = out_, size = Dims{height_, width_}](const Tensor& x) {
                     return interpolate((*out)((*dropout)(x)),
                                        {.size = size, .mode = InterpolateMode::linear});
                   }});
  return chain;
}

}  // namespace dtrain
