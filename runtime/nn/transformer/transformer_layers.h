// The layers of transformers (Vaswani et al. 2017), with the names, initial values and order of PyTorch's.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/nn/norms.h"
#include "runtime/nn/transformer/multihead_attention.h"

namespace dtrain {

/// Between the two layers of a feed-forward part.
enum class FeedForwardActivation { relu, gelu };

struct TransformerLayerOptions {
  std::int64_t feed_forward = 2048;  ///< torch's dim_feedforward
  /// Behind attention, in the feed-forward part and of the attention's weights, with masks from
  /// `dropout_key`. PyTorch's default is 0.1.
  double dropout = 0;
  std::shared_ptr<DropoutKey> dropout_key = nullptr;
  FeedForwardActivation activation = FeedForwardActivation::relu;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  ///< sequences are [N, L, …] instead of [L, N, …]
  bool norm_first =
      false;  ///< norms in front of each part (Xiong et al. 2020) instead of behind its shortcut
  bool bias = true;
};

/// What a sequence hides, as AttendOptions has it.
struct SequenceMasks {
  Tensor attention_mask = {}, key_padding_mask = {};
  bool causal = false;
};

/// What encoder and decoder layers have in common: the parts behind their attention.
class TransformerLayer : public MultiModule {
 protected:
  TransformerLayer(std::int64_t width, std::int64_t heads, const TransformerLayerOptions& options,
                   bool has_memory, Generator& generator, const std::shared_ptr<Device>& device);

  /// x + f(norm(x)), or norm(x + f(x)): part `number`, from 0.
  template <class Part>
  Tensor with_shortcut(std::size_t number, const Tensor& x, const Part& part) const;
  Tensor feed_forward(const Tensor& x) const;
  static Tensor attended(MultiheadAttention& attention, const Tensor& x, const Tensor& memory,
                         const SequenceMasks& masks);

  std::shared_ptr<MultiheadAttention> self_attention_, memory_attention_;  ///< the second: null in an encoder

 private:
  Tensor dropped(const std::shared_ptr<Dropout>& dropout, const Tensor& x) const;

  TransformerLayerOptions options_;
  std::shared_ptr<Linear> linear1_, linear2_;
  std::shared_ptr<Dropout> dropout_;                ///< null: none
  std::vector<std::shared_ptr<LayerNorm>> norms_;   ///< of each part
  std::vector<std::shared_ptr<Dropout>> dropouts_;  ///< behind each part; null: none
};

/// torch.nn.TransformerEncoderLayer: attention to itself, then a feed-forward part. Inputs of forward_all: x,
/// and optionally an attention mask and a key padding mask. Recomputed as a block.
///
///     TransformerEncoderLayer layer(512, 8, {.batch_first = true, .norm_first = true});
///     const Tensor y = layer.encode(x, {.key_padding_mask = lengths_mask});
class TransformerEncoderLayer : public TransformerLayer {
 public:
  /// Throws UsageError as MultiheadAttention and Linear.
  TransformerEncoderLayer(std::int64_t width, std::int64_t heads, const TransformerLayerOptions& options = {},
                          Generator& generator = default_generator(),
                          const std::shared_ptr<Device>& device = default_device());
  Tensors forward_all(const Tensors& inputs) override;
  Tensor encode(const Tensor& x, const SequenceMasks& masks = {});
};

/// torch.nn.TransformerDecoderLayer: attention to itself, to what an encoder made (the memory), then a
/// feed-forward part. Inputs of forward_all: x, memory, and optionally the masks of x (attention, then key
/// padding: pass an undefined one for none) and of the memory, as PyTorch orders them: target mask, memory
/// mask, target padding, memory padding.
class TransformerDecoderLayer : public TransformerLayer {
 public:
  TransformerDecoderLayer(std::int64_t width, std::int64_t heads, const TransformerLayerOptions& options = {},
                          Generator& generator = default_generator(),
                          const std::shared_ptr<Device>& device = default_device());
  Tensors forward_all(const Tensors& inputs) override;
  Tensor decode(const Tensor& x, const Tensor& memory, const SequenceMasks& masks = {},
                const SequenceMasks& memory_masks = {});
};

}  // namespace dtrain
