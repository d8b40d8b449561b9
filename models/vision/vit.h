// Vision transformers (Dosovitskiy et al. 2021, "An image is worth 16x16 words"), with timm's names and
// shapes.
#pragma once

#include <string_view>

#include "models/vision/network.h"

namespace dtrain {

struct ViTShape {
  std::string_view name;
  std::int64_t width = 384, heads = 6, blocks = 12, patch = 16;
};

/// timm's vit_small_patch16_224 ("vit-small") and vit_base_patch16_224 ("vit-base"); null for another name.
const ViTShape* vit_shape(std::string_view name) noexcept;

/// Images [N, channels, H, W], H and W multiples of the patch → logits [N, classes]: patches as tokens behind
/// one of the class, learned positions, blocks with norms before attention and a feed-forward layer of four
/// times the width, the class's token through a norm and a linear layer. Initial weights are normal with
/// deviation 0.02 (timm cuts them off at a hundred deviations); biases 0.
class VisionTransformer : public Module {
 public:
  /// Throws UsageError for images that patches do not fill.
  VisionTransformer(const ViTShape& shape, const NetworkInput& input, Generator& generator,
                    const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor class_token_, positions_;
  std::shared_ptr<Module> patches_, blocks_, norm_, head_;
};

}  // namespace dtrain
