// Patches of images as columns, their sum at their places, and images sampled at any places.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Where patches begin and which pixels they take, for rows and columns, as in torch.nn.Unfold.
struct PatchGeometry {
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
};

/// The patches of x [N, C, H, W] as columns: [N, C · kernel_h · kernel_w, L], L places row by row
/// (torch.nn.functional.unfold). Throws UsageError for other shapes, and a geometry that leaves no place.
Tensor unfold(const Tensor& x, const PatchGeometry& geometry);
/// Adds columns [N, C · kernel_h · kernel_w, L] up at their places in images [N, C, height, width]
/// (torch.nn.functional.fold): the adjoint of unfold(). Throws UsageError where they do not fit.
Tensor fold(const Tensor& columns, std::int64_t height, std::int64_t width, const PatchGeometry& geometry);

enum class SampleMode {
  bilinear,  ///< between the four neighbours
  nearest,   ///< the nearest one; of two the even one
};
enum class SamplePadding {
  zeros,   ///< there is nothing but 0 outside
  border,  ///< places outside are those on the border that are closest
};

struct GridSampleOptions {
  SampleMode mode = SampleMode::bilinear;
  SamplePadding padding = SamplePadding::zeros;
  /// -1 and 1 are the middles of the outermost pixels; without it, their outer edges.
  bool align_corners = false;
};

/// x [N, C, H, W] at the places of grid [N, OH, OW, 2] → [N, C, OH, OW]: grid[…, 0] is along the width and
/// grid[…, 1] along the height, from -1 to 1 (torch.nn.functional.grid_sample). Both get gradients; places
/// that are NaN are outside. Throws UsageError for other shapes and dtypes.
///
///     grid_sample(x, grid, {.align_corners = true});
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

}  // namespace dtrain
