// Attention of queries to keys and values with several heads (Vaswani et al. 2017), with the names, initial
// values and masks of torch.nn.MultiheadAttention. What a language model attends with, one projection whose
// heads ranks can share, is SelfAttention (runtime/nn/attention.h).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct MultiheadAttentionOptions {
  /// Of the attention's weights, with masks from `dropout_key`.
  double dropout = 0;
  std::shared_ptr<DropoutKey> dropout_key = nullptr;
  bool bias = true;
  std::int64_t key_width = 0;    ///< features of keys (torch's kdim); 0: the layer's width
  std::int64_t value_width = 0;  ///< features of values (vdim); 0: the layer's width
  /// Sequences are [N, L, …] instead of [L, N, …].
  bool batch_first = false;
};

/// What a call hides and gives.
struct AttendOptions {
  /// [N, S]: bool, true for keys that nobody sees; or floating, added to the scores. Undefined: none.
  Tensor key_padding_mask = {};
  /// [L, S], or [N · heads, L, S]: bool, true for keys that a query does not see; or floating, added.
  /// Undefined: none.
  Tensor attention_mask = {};
  /// Query i sees keys 0 … i only.
  bool causal = false;
  /// The weights are given too: then the scores are in memory.
  bool need_weights = false;
  bool average_weights = true;  ///< over heads: [N, L, S] instead of [N, heads, L, S]
};

/// Of a call.
struct Attended {
  Tensor output;   ///< as the query
  Tensor weights;  ///< undefined unless they were asked for
};

/// Queries [L, N, width], keys [S, N, key_width] and values [S, N, value_width] → [L, N, width]; [N, L, …] if
/// `batch_first`, and without N one sequence. Parameters, as PyTorch's: in_proj_weight [3 · width, width], or
/// q_proj_weight, k_proj_weight and v_proj_weight where widths differ, in_proj_bias [3 · width],
/// out_proj.weight and out_proj.bias. Inputs of forward_all: query (alone: attention to itself), key, value,
/// key_padding_mask, attention_mask. A query whose keys are all hidden gives NaN, as in PyTorch.
///
///     MultiheadAttention attention(256, 8, {.batch_first = true}, generator, device);
///     const auto [y, weights] = attention.attend(x, memory, memory, {.need_weights = true});
class MultiheadAttention : public MultiModule {
 public:
  /// Throws UsageError for heads that do not divide the width.
  MultiheadAttention(std::int64_t width, std::int64_t heads, const MultiheadAttentionOptions& options = {},
                     Generator& generator = default_generator(),
                     const std::shared_ptr<Device>& device = default_device());
  Tensors forward_all(const Tensors& inputs) override;
  /// Throws UsageError for shapes that do not fit.
  Attended attend(const Tensor& query, const Tensor& key, const Tensor& value,
                  const AttendOptions& options = {});

 private:
  struct Heads {
    Tensor query, key, value;  ///< [N, heads, L or S, width / heads]
  };
  Heads project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  void check(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor mask_of(const AttendOptions& options, const Heads& heads) const;

  std::int64_t width_, heads_;
  MultiheadAttentionOptions options_;
  Tensor in_weight_, query_weight_, key_weight_, value_weight_, in_bias_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<AttentionDropout> dropout_;  ///< null: none
};

}  // namespace dtrain
