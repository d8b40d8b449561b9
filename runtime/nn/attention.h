// Attention with several heads (Vaswani et al. 2017), of which groups may share keys and values (Ainslie et
// al., "GQA", 2023).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/nn/module.h"
#include "runtime/nn/rotary.h"

namespace dtrain {

/// How the features of one projection are cut into heads. They are laid out group by group: the query heads
/// that share a key, that key, its value; then those of the next key. With as many keys as queries that is q,
/// k and v of the first head, of the second, …: a slice of whole groups is a smaller attention of the same
/// kind, so that ranks can split it.
struct HeadShape {
  std::int64_t heads = 1;       ///< of queries
  std::int64_t kv_heads = 1;    ///< of keys and of values; divides heads
  std::int64_t head_width = 1;  ///< features of each

  /// Features of the projection to queries, keys and values.
  std::int64_t fused_width() const { return (heads + 2 * kv_heads) * head_width; }

  bool operator==(const HeadShape&) const = default;
};

/// Keys and values of the tokens that a layer has seen, so that the next ones need not compute them again.
/// How many those are in each row of a batch, the positions of a call say (AttentionContext).
struct KeyValueCache {
  Tensor keys, values;  ///< [B, kv_heads, capacity, head_width], each row written as far as it was seen

  KeyValueCache(std::int64_t batch, std::int64_t capacity, const HeadShape& shape,
                const std::shared_ptr<Device>& device, DType dtype = DType::f32);
};

/// What tokens of a batch see, in addition to their features. Borrowed for the call.
struct AttentionContext {
  bool causal = true;
  const RotaryEmbedding* rotary = nullptr;  ///< null: queries and keys stay as they are
  Tensor mask = {};  ///< added to the scores: broadcasts to [B, heads, L, L]; undefined: none
  /// i32 [B, L], where in its row the document of each token begins, of rows that hold several: tokens see
  /// those of their own document alone, and rotary angles count from its first one. Undefined: a row is one.
  Tensor documents = {};
  /// For generation, without gradients: keys and values of before, to which those of this call are added.
  KeyValueCache* cache = nullptr;
  Tensor positions =
      {};  ///< with cache: i64 [B, L], where the tokens are; undefined: from 0 on, and none was before
};

/// Where each token is in its document, i64 [B, L], of `documents` as AttentionContext has them.
Tensor positions_in(const Tensor& documents);

/// fused [B, L, shape.fused_width()] → [B, L, heads · head_width]. Throws UsageError where they do not fit.
Tensor attend_heads(const Tensor& fused, const HeadShape& shape, const AttentionContext& context);

struct SelfAttentionOptions {
  std::int64_t kv_heads = 0;    ///< 0: as many as heads
  std::int64_t head_width = 0;  ///< 0: width / heads
  bool qkv_bias = true;
  bool bias = true;  ///< of the projection behind it
  bool causal = false;
  std::optional<RotaryEmbedding> rotary = std::nullopt;
};

/// Attention of a sequence to itself: x [B, L, width] → the same. Inputs: x, and optionally a mask and
/// documents (AttentionContext). Parameters: qkv (HeadShape says in which order) and proj, each as Linear's.
///
///     SelfAttention attention(256, 8, generator, device, {.kv_heads = 2, .causal = true});
///     Tensor y = attention(x);
class SelfAttention : public MultiModule {
 public:
  /// Throws UsageError for heads that do not divide the width, or that the keys do not divide.
  SelfAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                const std::shared_ptr<Device>& device, SelfAttentionOptions options = {});
  Tensors forward_all(const Tensors& inputs) override;

 private:
  void on_move(const std::shared_ptr<Device>& device) override {
    if (options_.rotary) options_.rotary->move_to(device);
  }

  SelfAttentionOptions options_;
  HeadShape shape_;
  std::shared_ptr<Module> qkv_, proj_;
};

}  // namespace dtrain
