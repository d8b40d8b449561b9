// One block of a transformer: attention and a feed-forward layer, each with a norm and a path around it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "models/text/transformer_layers.h"
#include "runtime/nn/attention.h"

namespace dtrain {

/// x [B, L, width] (of a split sequence this rank's part) → the same. Inputs: x, and optionally a mask and
/// documents (AttentionContext), of all L tokens. Norms stand before attention and feed-forward layer, in
/// BERT behind the sums. Parameters: norm1, qkv, proj, norm2, up, down, and for swiglu gate; of slices this
/// rank's; and of adapters lora_q, lora_o, …
class TransformerBlock final : public MultiModule {
 public:
  /// `label` names its collectives.
  TransformerBlock(const TransformerLayers& layers, const std::string& label);
  Tensors forward_all(const Tensors& inputs) override;
  /// For generation: see AttentionContext.
  Tensor forward_cached(const Tensor& x, KeyValueCache& cache, const Tensor& positions);

  /// Of this rank's heads.
  const HeadShape& heads() const noexcept { return heads_; }

 private:
  void on_move(const std::shared_ptr<Device>& device) override {
    if (rotary_) rotary_->move_to(device);
  }
  Tensor through_block(const Tensor& x, const AttentionContext& context);
  Tensor feed_forward(const Tensor& x);
  void add_adapters(const TransformerLayers& layers, const std::string& label);
  /// What `layer`, and the adapter called `name` if there is one, make of x.
  Tensor adapted(const std::shared_ptr<Module>& layer, std::string_view name, const Tensor& x);
  Tensor fused_heads(const Tensor& x);

  HeadShape heads_;
  FeedForward kind_;
  bool norm_first_, causal_;
  std::optional<RotaryEmbedding> rotary_;
  std::shared_ptr<Module> norm1_, qkv_, proj_, norm2_, gate_, up_, down_;  ///< gate_ is null but for swiglu
  std::shared_ptr<Module> attention_dropout_, wide_dropout_;               ///< null without
  std::map<std::string, std::shared_ptr<Module>, std::less<>> adapters_;  ///< by the layers they stand beside
};

}  // namespace dtrain
