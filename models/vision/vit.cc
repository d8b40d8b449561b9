#include "models/vision/vit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/autograd/ops/attention.h"
#include "runtime/base/error.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"

namespace dtrain {
namespace {

constexpr std::array<ViTShape, 2> kShapes = {{{"vit-small", 384, 6}, {"vit-base", 768, 12}}};
constexpr double kEps = 1e-6, kDeviation = 0.02, kClassDeviation = 1e-6;

/// Attention of all tokens to all; qkv's rows are those of all queries, all keys, all values.
class ViTAttention final : public Module {
 public:
  ViTAttention(const ViTShape& shape, Generator& generator, const std::shared_ptr<Device>& device)
      : qkv_(add_module("qkv", std::make_shared<Linear>(shape.width, 3 * shape.width, generator, device))),
        proj_(add_module("proj", std::make_shared<Linear>(shape.width, shape.width, generator, device))),
        heads_(shape.heads) {}
  Tensor forward(const Tensor& x) override {
    return (*proj_)(packed_attention((*qkv_)(x), {.heads = heads_}));
  }

 private:
  std::shared_ptr<Linear> qkv_, proj_;
  std::int64_t heads_;
};

/// fc2(gelu(fc1(x))).
class FeedForwardLayers final : public Module {
 public:
  FeedForwardLayers(std::int64_t width, Generator& generator, const std::shared_ptr<Device>& device)
      : fc1_(add_module("fc1", std::make_shared<Linear>(width, 4 * width, generator, device))),
        fc2_(add_module("fc2", std::make_shared<Linear>(4 * width, width, generator, device))) {}
  Tensor forward(const Tensor& x) override { return (*fc2_)(gelu((*fc1_)(x))); }

 private:
  std::shared_ptr<Linear> fc1_, fc2_;
};

class ViTBlock final : public Module {
 public:
  ViTBlock(const ViTShape& shape, Generator& generator, const std::shared_ptr<Device>& device) {
    mark_block();
    const Dims width{shape.width};
    norm1_ = add_module("norm1", std::make_shared<LayerNorm>(width, device, kEps));
    attention_ = add_module("attn", std::make_shared<ViTAttention>(shape, generator, device));
    norm2_ = add_module("norm2", std::make_shared<LayerNorm>(width, device, kEps));
    mlp_ = add_module("mlp", std::make_shared<FeedForwardLayers>(shape.width, generator, device));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = add(x, (*attention_)((*norm1_)(x)));
    return add(y, (*mlp_)((*norm2_)(y)));
  }

 private:
  std::shared_ptr<Module> norm1_, attention_, norm2_, mlp_;
};

/// Only carries a name: "patch_embed.proj".
class PatchEmbedding final : public Module {
 public:
  PatchEmbedding(std::int64_t channels, const ViTShape& shape, Generator& generator,
                 const std::shared_ptr<Device>& device) {
    Conv2dOptions options;
    options.geometry.stride_h = options.geometry.stride_w = shape.patch;
    proj_ = add_module(
        "proj", std::make_shared<Conv2d>(channels, shape.width, shape.patch, generator, device, options));
  }
  /// [N, C, H, W] → [N, patches, width]
  Tensor forward(const Tensor& x) override { return flatten((*proj_)(x), 2).transpose(1, 2); }

 private:
  std::shared_ptr<Conv2d> proj_;
};

void draw_linear_weights(Module& network, Generator& generator) {
  const NoGrad no_grad;
  for (auto& [name, tensor] : network.named_parameters()) {
    const bool is_bias = name.ends_with(".bias");
    if (tensor.rank() == 2) tensor.fill_normal(generator, 0, kDeviation);
    if (is_bias && !name.starts_with("patch_embed")) tensor.fill(0);
  }
}

}  // namespace

const ViTShape* vit_shape(std::string_view name) noexcept {
  const auto found = std::ranges::find(kShapes, name, &ViTShape::name);
  return found == kShapes.end() ? nullptr : &*found;
}

VisionTransformer::VisionTransformer(const ViTShape& shape, const NetworkInput& input, Generator& generator,
                                     const std::shared_ptr<Device>& device) {
  if (input.height % shape.patch != 0 || input.width % shape.patch != 0) {
    throw UsageError(fmt::format("{}: expected images whose sides are multiples of {}, got {} x {}",
                                 shape.name, shape.patch, input.height, input.width));
  }
  const std::int64_t tokens = 1 + input.height / shape.patch * (input.width / shape.patch);
  const auto drawn = [&](std::int64_t rows, double deviation) {
    Tensor values = Tensor::empty({1, rows, shape.width}, device);
    values.fill_normal(generator, 0, deviation);
    return values;
  };
  class_token_ = add_parameter("cls_token", drawn(1, kClassDeviation));
  positions_ = add_parameter("pos_embed", drawn(tokens, kDeviation));
  patches_ =
      add_module("patch_embed", std::make_shared<PatchEmbedding>(input.channels, shape, generator, device));
  std::vector<std::shared_ptr<Module>> blocks;
  for (std::int64_t i = 0; i < shape.blocks; ++i)
    blocks.push_back(std::make_shared<ViTBlock>(shape, generator, device));
  blocks_ = add_module("blocks", std::make_shared<Sequential>(blocks));
  norm_ = add_module("norm", std::make_shared<LayerNorm>(Dims{shape.width}, device, kEps));
  head_ = add_module("head", std::make_shared<Linear>(shape.width, input.classes, generator, device));
  draw_linear_weights(*this, generator);
}

Tensor VisionTransformer::forward(const Tensor& x) {
  const Tensor patches = (*patches_)(x);  // [N, patches, width]
  const Tensor classes = class_token_.expand({x.size(0), 1, patches.size(2)});
  const Tensor tokens = add(cat({classes, patches}, 1), positions_);
  return (*head_)((*norm_)((*blocks_)(tokens).slice(1, 0, 1).squeeze(1)));
}

}  // namespace dtrain
