// Pooling of sequences and volumes, on the kernels of pool2d, on every device and in every dtype that these
// take.
#pragma once

#include <cstdint>

#include "runtime/device/kernels.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// A window, as Pool2dGeometry has it: padding is at most half of the kernel, and counts as zeros in
/// averages.
struct Pool1dGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t kernel = 2, stride = 2, pad = 0;
};

struct Pool3dGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t kernel_d = 2, kernel_h = 2, kernel_w = 2;
  std::int64_t stride_d = 2, stride_h = 2, stride_w = 2;
  std::int64_t pad_d = 0, pad_h = 0, pad_w = 0;
};

/// x [N, C, L] → [N, C, (L + 2·pad - kernel) / stride + 1].
Tensor pool1d(const Tensor& x, const Pool1dGeometry& geometry);

/// x [N, C, D, H, W] → [N, C, OD, OH, OW]: frame by frame, then over the frames.
Tensor pool3d(const Tensor& x, const Pool3dGeometry& geometry);

/// A window of as many dimensions as x has behind [N, C].
struct MaxPoolOptions {
  Dims kernel;
  Dims stride = {};    ///< left out: the kernel's extents
  Dims padding = {};   ///< left out: 0; at most half of the kernel
  Dims dilation = {};  ///< left out: 1; the distance of a window's neighbouring elements
};

/// x [N, C, L], [N, C, H, W] or [N, C, D, H, W] → the same with (extent + 2·padding - dilation·(kernel - 1) -
/// 1) / stride + 1 in each dimension behind C: torch's max_pool1d, 2d and 3d. Of elements that tie, the first
/// gets the gradient. Dimensions that are dilated are pooled one after the other, from a copy in which each
/// window has its own elements. Throws UsageError for another rank and for windows that do not fit.
///
///     max_pool(images, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {2, 2}, .dilation = {2, 2}});
Tensor max_pool(const Tensor& x, const MaxPoolOptions& options);

/// x [N, C, L] → [N, C, length], see adaptive_avg_pool2d.
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t length);

}  // namespace dtrain
