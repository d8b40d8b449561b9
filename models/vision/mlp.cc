#include "models/vision/mlp.h"

namespace dtrain {
namespace {

constexpr std::int64_t kHidden = 512;

}  // namespace

Mlp::Mlp(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device) {
  const std::int64_t pixels = input.channels * input.height * input.width;
  fc1_ = add_module("fc1", std::make_shared<Linear>(pixels, kHidden, generator, device,
                                                    LinearOptions{.activation = Activation::relu}));
  fc2_ = add_module("fc2", std::make_shared<Linear>(kHidden, kHidden, generator, device,
                                                    LinearOptions{.activation = Activation::relu}));
  fc3_ = add_module("fc3", std::make_shared<Linear>(kHidden, input.classes, generator, device));
}

Tensor Mlp::forward(const Tensor& x) {
  return (*fc3_)((*fc2_)((*fc1_)(flatten(x))));  // [N, C, H, W] → [N, C·H·W] → [N, 512] twice → [N, classes]
}

std::vector<LayerUnit> Mlp::chain() const {
  return {{{{"fc1", fc1_}}, [fc1 = fc1_](const Tensor& x) { return (*fc1)(flatten(x)); }},
          layer_unit("fc2", fc2_),
          layer_unit("fc3", fc3_)};
}

}  // namespace dtrain
