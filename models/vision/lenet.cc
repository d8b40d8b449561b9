#include "models/vision/lenet.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMaps1 = 20, kMaps2 = 50, kHidden = 128;

// Extent after a valid convolution of `kernel` and 2 × 2 pooling.
std::int64_t pooled(std::int64_t extent, std::int64_t kernel) { return (extent - kernel + 1) / 2; }

std::int64_t flat_size(const NetworkInput& input) {
  const std::int64_t height = pooled(pooled(input.height, 3), 5), width = pooled(pooled(input.width, 3), 5);
  if (height < 1 || width < 1) {
    throw UsageError(
        fmt::format("lenet: expected images of at least 14 x 14, got {} x {}", input.height, input.width));
  }
  return kMaps2 * height * width;
}

}  // namespace

LeNet::LeNet(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device) {
  const Conv2dOptions relu_and_pool{
      .geometry = {}, .activation = Activation::relu, .pool = Pool2dGeometry{PoolKind::avg}};
  conv1_ = add_module("conv1",
                      std::make_shared<Conv2d>(input.channels, kMaps1, 3, generator, device, relu_and_pool));
  conv2_ = add_module("conv2", std::make_shared<Conv2d>(kMaps1, kMaps2, 5, generator, device, relu_and_pool));
  fc1_ = add_module("fc1", std::make_shared<Linear>(flat_size(input), kHidden, generator, device,
                                                    LinearOptions{.activation = Activation::relu}));
  fc2_ = add_module("fc2", std::make_shared<Linear>(kHidden, input.classes, generator, device));
}

Tensor LeNet::forward(const Tensor& x) {
  const Tensor maps1 = (*conv1_)(x);        // [N, 1, 28, 28] → [N, 20, 26, 26] → [N, 20, 13, 13]
  const Tensor maps2 = (*conv2_)(maps1);    // → [N, 50, 9, 9] → [N, 50, 4, 4]
  return (*fc2_)((*fc1_)(flatten(maps2)));  // → [N, 800] → [N, 128] → [N, 10]
}

std::vector<LayerUnit> LeNet::chain() const {
  return {layer_unit("conv1", conv1_),
          layer_unit("conv2", conv2_),
          {{{"fc1", fc1_}}, [fc1 = fc1_](const Tensor& x) { return (*fc1)(flatten(x)); }},
          layer_unit("fc2", fc2_)};
}

}  // namespace dtrain
