#include "runtime/autograd/ops/patches.h"

#include <string>
#include <vector>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/activations.h"
#include "runtime/autograd/ops/elementary.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/masks.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain {
namespace {

/// Of a padded image, and the places of patches in it.
struct Places {
  std::int64_t height, width, rows, columns;
};

std::int64_t places_of(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t reach = dilation * (kernel - 1) + 1;
  return extent < reach ? 0 : (extent - reach) / stride + 1;
}

Places places_in(std::string_view name, std::int64_t height, std::int64_t width, const PatchGeometry& g) {
  const bool positive = g.kernel_h > 0 && g.kernel_w > 0 && g.stride_h > 0 && g.stride_w > 0 &&
                        g.dilation_h > 0 && g.dilation_w > 0 && g.pad_h >= 0 && g.pad_w >= 0;
  Places places{height + 2 * g.pad_h, width + 2 * g.pad_w, 0, 0};
  if (positive) {
    places.rows = places_of(places.height, g.kernel_h, g.stride_h, g.dilation_h);
    places.columns = places_of(places.width, g.kernel_w, g.stride_w, g.dilation_w);
  }
  if (places.rows > 0 && places.columns > 0) return places;
  throw UsageError(
      std::string(name) +
      ": expected kernels, strides and dilations of at least 1, paddings of at least 0, and a patch "
      "that fits, got a kernel of " +
      std::to_string(g.kernel_h) + " x " + std::to_string(g.kernel_w) + " for images of " +
      std::to_string(height) + " x " + std::to_string(width));
}

/// Where each element of the columns of one channel is in the padded image, row by row.
std::vector<std::int64_t> sources_of(const Places& places, const PatchGeometry& g) {
  std::vector<std::int64_t> sources;
  for (std::int64_t i = 0; i < g.kernel_h; ++i)
    for (std::int64_t j = 0; j < g.kernel_w; ++j)
      for (std::int64_t row = 0; row < places.rows; ++row)
        for (std::int64_t column = 0; column < places.columns; ++column)
          sources.push_back((row * g.stride_h + i * g.dilation_h) * places.width + column * g.stride_w +
                            j * g.dilation_w);
  return sources;
}

/// grid's coordinates in pixels, [N, 1, P]: from -1 … 1 to 0 … extent - 1.
Tensor pixels_of(const Tensor& coordinate, std::int64_t extent, const GridSampleOptions& options) {
  const auto size = static_cast<double>(extent);
  const Tensor flat = coordinate.flatten(1).unsqueeze(1);
  const Tensor known = masked_fill(flat, isnan(flat), -2.0);  // outside
  Tensor pixels =
      options.align_corners ? (known + 1.0) * ((size - 1) / 2) : ((known + 1.0) * size - 1.0) / 2.0;
  if (options.padding == SamplePadding::border) pixels = clamp(pixels, 0.0, size - 1);
  return pixels;
}

/// The pixels of `images` [N, C, H · W] in rows and columns [N, 1, P] that are whole numbers; 0 outside.
Tensor picked(const Tensor& images, const Tensor& row, const Tensor& column, std::int64_t height,
              std::int64_t width) {
  const auto bottom = static_cast<double>(height - 1), right = static_cast<double>(width - 1);
  const DType dtype = images.dtype();
  const Tensor inside = (row >= 0.0).to(dtype) * (row <= bottom).to(dtype) * (column >= 0.0).to(dtype) *
                        (column <= right).to(dtype);
  const auto whole = [](const Tensor& at, double last) {
    return clamp(at.detach(), 0.0, last).to(DType::i64);
  };
  const Tensor index = whole(row, bottom) * width + whole(column, right);
  const Dims shape{images.size(0), images.size(1), row.size(2)};
  return gather(images, 2, index.expand(shape)) * inside;
}

void check_grid(const Tensor& x, const Tensor& grid) {
  check_floating("grid_sample", x);
  check_same_kind("grid_sample", x, grid);
  const bool fits = x.rank() == 4 && grid.rank() == 4 && grid.size(0) == x.size(0) && grid.size(3) == 2 &&
                    x.size(2) > 0 && x.size(3) > 0;
  if (fits) return;
  throw UsageError("grid_sample: expected x [N, C, H, W] with pixels and grid [N, OH, OW, 2], got " +
                   x.describe() + " and " + grid.describe());
}

}  // namespace

Tensor unfold(const Tensor& x, const PatchGeometry& geometry) {
  if (x.rank() != 4) throw UsageError("unfold: expected x [N, C, H, W], got " + x.describe());
  const PatchGeometry& g = geometry;
  const Places places = places_in("unfold", x.size(2), x.size(3), g);
  const Tensor padded = g.pad_h + g.pad_w > 0 ? pad(x, {g.pad_w, g.pad_w, g.pad_h, g.pad_h}) : x;
  Tensors pieces;
  for (std::int64_t i = 0; i < g.kernel_h; ++i) {
    const std::int64_t top = i * g.dilation_h, bottom = top + (places.rows - 1) * g.stride_h + 1;
    const Tensor rows = padded.slice(2, top, bottom, g.stride_h);
    for (std::int64_t j = 0; j < g.kernel_w; ++j) {
      const std::int64_t left = j * g.dilation_w, right = left + (places.columns - 1) * g.stride_w + 1;
      pieces.push_back(rows.slice(3, left, right, g.stride_w));
    }
  }
  return reshape(stack(pieces, 2),
                 {x.size(0), x.size(1) * g.kernel_h * g.kernel_w, places.rows * places.columns});
}

Tensor fold(const Tensor& columns, std::int64_t height, std::int64_t width, const PatchGeometry& geometry) {
  const PatchGeometry& g = geometry;
  const Places places = places_in("fold", height, width, g);
  const std::int64_t kernel = g.kernel_h * g.kernel_w, count = places.rows * places.columns;
  if (columns.rank() != 3 || columns.size(1) % kernel != 0 || columns.size(2) != count) {
    throw UsageError("fold: expected columns [N, C * " + std::to_string(kernel) + ", " +
                     std::to_string(count) + "], got " + columns.describe());
  }
  const std::int64_t samples = columns.size(0), channels = columns.size(1) / kernel;
  const Tensor values = reshape(columns, {samples, channels, kernel * count});
  const Tensor index =
      Tensor::from_data(sources_of(places, g), {1, 1, kernel * count}, columns.shared_device());
  const Tensor empty = Tensor::zeros({samples, channels, places.height * places.width},
                                     columns.shared_device(), columns.dtype());
  const Tensor sums = scatter_add(empty, 2, index.expand(values.shape()), values);
  return reshape(sums, {samples, channels, places.height, places.width})
      .slice(2, g.pad_h, g.pad_h + height)
      .slice(3, g.pad_w, g.pad_w + width);
}

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  if (autocast_mixes(x, grid)) return grid_sample(autocast_full(x), autocast_full(grid), options);
  check_grid(x, grid);
  const bool half = is_half(x.dtype());
  const Tensor images = (half ? x.to(DType::f32) : x).flatten(2), places = half ? grid.to(DType::f32) : grid;
  const std::int64_t height = x.size(2), width = x.size(3);
  const Tensor column = pixels_of(places.select(3, 0), width, options),
               row = pixels_of(places.select(3, 1), height, options);
  Tensor sampled;
  if (options.mode == SampleMode::nearest) {
    // The grid's gradient is there, and 0.
    const Tensor one =
        record_constant("grid_sample", Tensor::ones({}, x.shared_device(), images.dtype()), {places});
    sampled = picked(images, round(row), round(column), height, width) * one;
  } else {
    const Tensor top = floor(row), left = floor(column), down = row - top, across = column - left;
    const auto corner = [&](double below, double beside) {
      return picked(images, top + below, left + beside, height, width);
    };
    sampled = (corner(0, 0) * (1.0 - across) + corner(0, 1) * across) * (1.0 - down) +
              (corner(1, 0) * (1.0 - across) + corner(1, 1) * across) * down;
  }
  return reshape(sampled, {x.size(0), x.size(1), grid.size(1), grid.size(2)}).to(x.dtype());
}

}  // namespace dtrain
