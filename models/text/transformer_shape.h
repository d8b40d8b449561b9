// What a transformer is made of: one record for GPT-2, LLaMA and BERT, and for the small one of one's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/text/lora.h"
#include "parallel/tensor/tensor_parallel_group.h"
#include "runtime/nn/attention.h"
#include "runtime/nn/rotary.h"

namespace dtrain {

/// Whose architecture it is, which decides what its tensors are called in published files.
enum class TransformerFamily {
  own,    ///< GPT-2's blocks with the exact gelu and PyTorch's initial values; has no published format
  gpt2,   ///< Radford et al. 2019
  llama,  ///< Touvron et al. 2023, and Qwen2
  bert,   ///< Devlin et al. 2018
};

enum class TransformerNorm { layer, rms };

/// What is between the two matrices of a feed-forward layer; swiglu (Shazeer 2020) has a third one.
enum class FeedForward { gelu, gelu_tanh, relu, swiglu };

struct TransformerShape {
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  ///< tokens that are seen at most
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  bool tied = false;  ///< words of output have the table of the words of input (Press and Wolf 2017)
  double dropout =
      0;  ///< share of features that training drops behind embeddings, attention and feed-forward layers

  TransformerFamily family = TransformerFamily::own;
  std::int64_t kv_heads = 0;    ///< of keys and values; 0: as many as heads
  std::int64_t head_width = 0;  ///< 0: width / heads
  std::int64_t inner = 0;       ///< features within a feed-forward layer; 0: 4 · width
  TransformerNorm norm = TransformerNorm::layer;
  double norm_eps = 1e-5;
  FeedForward feed_forward = FeedForward::gelu;
  bool qkv_bias = true;                                ///< of the projection to queries, keys and values
  bool proj_bias = true;                               ///< of the layer behind attention
  bool inner_bias = true;                              ///< of the feed-forward layer
  std::optional<RotaryOptions> rotary = std::nullopt;  ///< else places have a table
  std::int64_t segments = 0;                           ///< BERT's kinds of tokens
  /// The token that stands for padding, whose row of the table learns nothing from being looked up.
  std::optional<std::int64_t> padding = std::nullopt;
  /// Deviation of the initial weights of linear layers, whose biases are 0; 0: as PyTorch draws a Linear.
  double initial_deviation = 0;
  /// Words and places have this deviation.
  double table_deviation = 0.02;
  /// Low-rank adapters beside some of a block's layers, which alone learn then.
  std::optional<LoraOptions> lora = std::nullopt;

  HeadShape head_shape() const {
    return {heads, kv_heads > 0 ? kv_heads : heads, head_width > 0 ? head_width : width / heads};
  }
  std::int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }

  bool operator==(const TransformerShape&) const = default;
};

/// The name of a family: "transformer", "gpt2", "llama", "bert".
std::string_view name_of(TransformerFamily family) noexcept;

/// `shape` as it is. Throws UsageError for a width that the heads do not divide, for heads that the keys do
/// not, and for what the ranks of `tp_group` (null: none) cannot share.
const TransformerShape& checked(const TransformerShape& shape, const TensorParallelGroup* tp_group);

/// Whether the ranks of `tp_group` each have a part of the vocabulary: where they do not divide it, each has
/// all.
bool splits_words(const TransformerShape& shape, const TensorParallelGroup& tp_group);

}  // namespace dtrain
