// Floating-point operations of the kernels that are made of multiply-adds; a multiply and an add count as
// two. What an algorithm saves (Winograd) or wastes (padding) is not looked at.
#pragma once

#include "runtime/device/kernels.h"

namespace dtrain {

/// Of a kernel that is not made of multiply-adds.
inline constexpr double kNoFlops = 0;

/// 2·B·M·N·K for a [B, M, K] and out [B, M, N].
double matmul_flops(const View& a, const View& out) noexcept;
/// 2·(E + F) for each query and key of a head that see each other; a causal query's own place is where
/// rule.first_query says, and masks are not looked at.
double attention_flops(const AttentionRule& rule, const View& query, const View& key,
                       const View& value) noexcept;
/// Forward, gradient of the input and gradient of the weight all take 2·N·O·OH·OW·(C / groups)·KH·KW:
/// `output` is [N, O, OH, OW] (or its gradient), `weight` [O, C / groups, KH, KW] (or its gradient).
double conv2d_flops(const View& weight, const View& output) noexcept;
/// Convolution at the places that pooling to `output` [N, O, PH, PW] reads.
double conv2d_pool2d_flops(const Pool2dGeometry& pool, const View& weight, const View& output) noexcept;
/// Both gradients of the above, the input's only if wanted: max pooling passes a gradient to one place of a
/// window, average pooling to all.
double conv2d_pool2d_backward_flops(const Pool2dGeometry& pool, const View& weight, const View& grad_output,
                                    bool wants_input) noexcept;

}  // namespace dtrain
