// Attention on the GPU's matrix units: for bf16, f16 and f32 whose rows can be read 16 bytes at a time.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/kernels.h"

namespace dtrain::cuda::attention {

/// Whether all of these (those with data) are bf16, f16 or f32, aligned to 16 bytes, with strides and widths
/// of multiples of 16 bytes.
bool suits_matrix_units(std::initializer_list<const View*> views);

/// As Kernels::attention and attention_backward, of arrays that suit.
void attention_by_tiles(const Context& context, const AttentionRule& rule, const AttentionMasks& masks,
                        const View& query, const View& key, const View& value, const View& output,
                        const View& log_sums);
void attention_backward_by_tiles(const Context& context, const AttentionRule& rule,
                                 const AttentionMasks& masks, const View& query, const View& key,
                                 const View& value, const View& output, const View& log_sums,
                                 const View& grad_output, const View& grad_query, const View& grad_key,
                                 const View& grad_value);

}  // namespace dtrain::cuda::attention
