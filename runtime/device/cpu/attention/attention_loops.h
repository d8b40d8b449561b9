// The inner loops of attention, compiled once for each instruction set (attention_loops_impl.h). Queries lie
// along the lanes of vectors: a tile of scores is [keys][queries], so that softmax has no sums across lanes,
// and keys and values are used as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace dtrain::cpu {

inline constexpr std::int64_t kQueriesOfBlock = 32;  ///< whose scores stand side by side
inline constexpr std::int64_t kKeysOfTile = 128;     ///< whose scores are in memory at once
inline constexpr std::int64_t kQueriesOfChunk = 256;

/// Matrices [batch, group, head of a group, row, column]: steps in elements, columns are neighbours.
struct AttentionArray {
  void* data = nullptr;
  std::int64_t batch = 0, group = 0, head = 0, row = 0;
  std::int64_t shared = 1;  ///< heads of a group

  /// Where a row of a head begins, the heads numbered group by group.
  std::int64_t offset(std::int64_t entry, std::int64_t h, std::int64_t r) const {
    return entry * batch + h / shared * group + h % shared * head + r * row;
  }
};

/// A call of the kernels `attention` and `attention_backward` (kernels.def), its arrays checked.
struct AttentionJob {
  DType dtype = DType::f32;
  std::int64_t heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  double scale = 1;
  bool causal = false;
  std::int64_t first_query = 0;

  AttentionArray query, key, value, output;
  void* log_sums = nullptr;  ///< [batch, heads, queries], f32 or, of f64, f64
  AttentionArray bias;       ///< null data: none; may have steps of 0
  std::int64_t bias_column = 0;
  const std::int64_t* lengths = nullptr;   ///< [batch], or null
  const std::int32_t* segments = nullptr;  ///< [batch, keys], or null

  double keep_share = 1;  ///< of the weights that dropout keeps; 1: no dropout
  std::uint64_t mask_key = 0;
  const std::int64_t* mask_rows = nullptr;  ///< [batch], or null: 0, 1, …
  std::int64_t mask_first = 0;

  // ---- backward
  AttentionArray grad_output, grad_key, grad_value;
  std::int64_t keys_of_stripe = 0;  ///< a multiple of kKeysOfTile
  void* grad_queries =
      nullptr;  ///< [stripes][batch, heads, queries, padded width]: to be added up and scaled
  std::int64_t stripe_step = 0;  ///< elements of one of them

  /// Keys that the batch entry has.
  std::int64_t keys_of(std::int64_t entry) const {
    if (lengths == nullptr) return keys;
    return lengths[entry] < 0 ? 0 : lengths[entry] < keys ? lengths[entry] : keys;
  }
};

struct AttentionLoops {
  std::int64_t lanes;  ///< rows of accumulated gradients are padded to a multiple of it
  /// Bytes of memory, aligned to 64, that a call of one of the others needs.
  std::size_t (*scratch_bytes)(const AttentionJob& job);
  /// Queries [part · kQueriesOfChunk, …) of a head.
  void (*forward)(const AttentionJob& job, std::int64_t entry, std::int64_t head, std::int64_t part,
                  std::byte* scratch);
  /// Keys [stripe · keys_of_stripe, …) of a key head: their gradients, and what they add to those of the
  /// queries.
  void (*backward)(const AttentionJob& job, std::int64_t entry, std::int64_t key_head, std::int64_t stripe,
                   std::byte* scratch);
};

/// The best loops that this processor runs for arrays of f32, f64 or bf16.
const AttentionLoops& attention_loops(DType dtype);

/// What each instruction set has.
struct AttentionTable {
  AttentionLoops f32, f64, bf16;
};
namespace baseline {
extern const AttentionTable kAttention;
}
#if defined(__x86_64__)
namespace avx2 {
extern const AttentionTable kAttention;
}
namespace avx512 {
extern const AttentionTable kAttention;
/// With dot products of pairs.
extern const AttentionLoops kAttentionBf16;
}  // namespace avx512
#endif

}  // namespace dtrain::cpu
