#include "models/vision/mlp.h"

namespace dtrain {
namespace {

constexpr std::int64_t kHidden = 512;

}  // namespace

Mlp::Mlp(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device) {
  const std::int64_t pixels = input.channels * input.height * input.width;
  if (!input.fill.empty()) fill_ = add_module("fill", std::make_shared<Impute>(input.fill, device));
  if (!input.mean.empty())
    scale_ = add_module("scale", std::make_shared<Standardize>(input.mean, input.deviation, device));
  fc1_ = add_module("fc1", std::make_shared<Linear>(pixels, kHidden, generator, device,
                                                    LinearOptions{.activation = Activation::relu}));
  fc2_ = add_module("fc2", std::make_shared<Linear>(kHidden, kHidden, generator, device,
                                                    LinearOptions{.activation = Activation::relu}));
  fc3_ = add_module("fc3", std::make_shared<Linear>(kHidden, input.classes, generator, device));
  if (!input.output_mean.empty()) {
    units_ = add_module("units",
                        std::make_shared<Unstandardize>(input.output_mean, input.output_deviation, device));
  }
}

Tensor Mlp::forward(const Tensor& x) {
  return through(chain(), x);  // [N, C, H, W] → [N, C·H·W] → [N, 512] twice → [N, classes]
}

std::vector<LayerUnit> Mlp::chain() const {
  NamedModules front;
  if (fill_) front.emplace_back("fill", fill_);
  if (scale_) front.emplace_back("scale", scale_);
  front.emplace_back("fc1", fc1_);
  LayerUnit first{front, [front](const Tensor& x) {
                    Tensor values = flatten(x);
                    for (const auto& [name, module] : front) values = (*module)(values);
                    return values;
                  }};
  LayerUnit last = layer_unit("fc3", fc3_);
  if (units_) {
    last = {{{"fc3", fc3_}, {"units", units_}},
            [fc3 = fc3_, units = units_](const Tensor& x) { return (*units)((*fc3)(x)); }};
  }
  return {std::move(first), layer_unit("fc2", fc2_), std::move(last)};
}

}  // namespace dtrain
