// interpolate of ops/resampling.h, one dimension after the other: rows that are picked, and mixed by shares.
#include "runtime/autograd/ops/resampling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain {
namespace {

/// Extents of a dimension, and how far apart the places of two neighbours of the result are in x.
struct Stretch {
  std::int64_t in = 0, out = 0;
  double step = 1;
};

void check_interpolate(const Tensor& x, const InterpolateOptions& options) {
  check_floating("interpolate", x);
  const int dims = x.rank() - 2;
  const auto scales = static_cast<int>(options.scale.size());
  const bool by_size = options.size.rank() > 0;
  const bool fits = by_size ? options.size.rank() == dims && scales == 0 : scales == 1 || scales == dims;
  if (dims >= 1 && dims <= 3 && fits) return;
  throw UsageError(
      "interpolate: expected x [N, C, L], [N, C, H, W] or [N, C, D, H, W] and a size for each dimension "
      "behind C, or one or as many scales, got " +
      x.describe() + ", size " + options.size.to_string() + " and " + std::to_string(scales) + " scales");
}

Stretch stretch_of(const Tensor& x, int dim, const InterpolateOptions& options) {
  Stretch stretch{.in = x.size(dim + 2)};
  const bool by_size = options.size.rank() > 0;
  const auto at = static_cast<std::size_t>(dim);
  const double scale = by_size ? 0 : options.scale[options.scale.size() == 1 ? 0 : at];
  const auto extent = static_cast<double>(stretch.in);
  stretch.out = by_size ? options.size[dim] : static_cast<std::int64_t>(std::floor(extent * scale));
  if (stretch.in < 1 || stretch.out < 1) {
    throw UsageError("interpolate: expected extents of at least 1, got " + std::to_string(stretch.out) +
                     " from " + std::to_string(stretch.in) + " in dimension " + std::to_string(dim + 2) +
                     " of " + x.describe());
  }
  const auto wanted = static_cast<double>(stretch.out);
  if (options.mode == InterpolateMode::linear && options.align_corners) {
    stretch.step = stretch.out > 1 ? (extent - 1) / (wanted - 1) : 0;
  } else {
    stretch.step = by_size ? extent / wanted : 1 / scale;
  }
  return stretch;
}

Tensor picked(const Tensor& x, int dim, const std::vector<std::int64_t>& places) {
  return x.index_select(
      dim, Tensor::from_data(places, {static_cast<std::int64_t>(places.size())}, x.shared_device()));
}

/// In float32, whose roundings decide which element PyTorch takes.
Tensor nearest(const Tensor& x, int dim, const Stretch& stretch) {
  const auto step = static_cast<float>(stretch.step);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < stretch.out; ++i) {
    const auto place = static_cast<std::int64_t>(std::floor(static_cast<float>(i) * step));
    places.push_back(std::min(place, stretch.in - 1));
  }
  return picked(x, dim, places);
}

Tensor linear_between(const Tensor& x, int dim, const Stretch& stretch, bool align_corners) {
  std::vector<std::int64_t> before, behind;
  std::vector<double> shares, rests;
  for (std::int64_t i = 0; i < stretch.out; ++i) {
    const auto number = static_cast<double>(i);
    const double place =
        align_corners ? number * stretch.step : std::max((number + 0.5) * stretch.step - 0.5, 0.0);
    before.push_back(std::min(static_cast<std::int64_t>(place), stretch.in - 1));
    behind.push_back(std::min(before.back() + 1, stretch.in - 1));
    shares.push_back(std::min(place - static_cast<double>(before.back()), 1.0));
    rests.push_back(1 - shares.back());
  }
  Dims shape = Dims::filled(x.rank(), 1);
  shape[dim] = stretch.out;
  const auto weights = [&](const std::vector<double>& values) {
    return Tensor::from_data(values, shape, x.shared_device()).to(x.dtype());
  };
  return add(mul(picked(x, dim, before), weights(rests)), mul(picked(x, dim, behind), weights(shares)));
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  check_interpolate(x, options);
  const bool is_linear = options.mode == InterpolateMode::linear;
  Tensor result = is_linear && is_half(x.dtype()) ? x.to(DType::f32) : x;
  for (int dim = 0; dim < x.rank() - 2; ++dim) {
    const Stretch stretch = stretch_of(x, dim, options);
    if (stretch.in == stretch.out && stretch.step == 1) continue;
    result = is_linear ? linear_between(result, dim + 2, stretch, options.align_corners)
                       : nearest(result, dim + 2, stretch);
  }
  return result.to(x.dtype());
}

}  // namespace dtrain
