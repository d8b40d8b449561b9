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
  if (options.mode == InterpolateMode::bicubic && dims != 2)
    throw UsageError("interpolate: expected x [N, C, H, W] for bicubic, got " + x.describe());
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
  if (!by_size && !(extent * scale < 0x1p31)) {
    throw UsageError("interpolate: expected scales that lead to less than 2^31 places, got " +
                     std::to_string(scale) + " for dimension " + std::to_string(dim + 2) + " of " +
                     x.describe());
  }
  stretch.out = by_size ? options.size[dim] : static_cast<std::int64_t>(std::floor(extent * scale));
  if (stretch.in < 1 || stretch.out < 1) {
    throw UsageError("interpolate: expected extents of at least 1, got " + std::to_string(stretch.out) +
                     " from " + std::to_string(stretch.in) + " in dimension " + std::to_string(dim + 2) +
                     " of " + x.describe());
  }
  const auto wanted = static_cast<double>(stretch.out);
  if (options.mode != InterpolateMode::nearest && options.align_corners) {
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

/// What each element of the result takes of x: one tap is a place and a share for each of them.
struct Tap {
  std::vector<std::int64_t> places;
  std::vector<double> shares;
};

/// Where element `i` of the result is in x: elements are areas, or points from the first to the last.
double place_of(std::int64_t i, const Stretch& stretch, bool align_corners) {
  const auto number = static_cast<double>(i);
  return align_corners ? number * stretch.step : (number + 0.5) * stretch.step - 0.5;
}

std::vector<Tap> linear_taps(const Stretch& stretch, bool align_corners) {
  std::vector<Tap> taps(2);
  for (std::int64_t i = 0; i < stretch.out; ++i) {
    const double place = std::max(place_of(i, stretch, align_corners), 0.0);
    const std::int64_t before = std::min(static_cast<std::int64_t>(place), stretch.in - 1);
    const double share = std::min(place - static_cast<double>(before), 1.0);
    taps[0].places.push_back(before);
    taps[0].shares.push_back(1 - share);
    taps[1].places.push_back(std::min(before + 1, stretch.in - 1));
    taps[1].shares.push_back(share);
  }
  return taps;
}

/// Keys' kernel at `distance`, from 0 to 2.
double cubic(double distance) {
  constexpr double kA = -0.75;
  const double d = distance;
  if (d <= 1) return ((kA + 2) * d - (kA + 3)) * d * d + 1;
  return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA;
}

std::vector<Tap> cubic_taps(const Stretch& stretch, bool align_corners) {
  std::vector<Tap> taps(4);
  for (std::int64_t i = 0; i < stretch.out; ++i) {
    const double place = place_of(i, stretch, align_corners), floor = std::floor(place);
    for (std::int64_t k = 0; k < 4; ++k) {
      Tap& tap = taps[static_cast<std::size_t>(k)];
      tap.places.push_back(
          std::clamp<std::int64_t>(static_cast<std::int64_t>(floor) + k - 1, 0, stretch.in - 1));
      tap.shares.push_back(cubic(std::abs(place - (floor + static_cast<double>(k - 1)))));
    }
  }
  return taps;
}

/// The sum of what the taps take along `dim`.
Tensor mixed(const Tensor& x, int dim, const std::vector<Tap>& taps) {
  Dims shape = Dims::filled(x.rank(), 1);
  shape[dim] = static_cast<std::int64_t>(taps.front().places.size());
  Tensor sum;
  for (const Tap& tap : taps) {
    const Tensor shares = Tensor::from_data(tap.shares, shape, x.shared_device()).to(x.dtype());
    const Tensor part = mul(picked(x, dim, tap.places), shares);
    sum = sum.defined() ? add(sum, part) : part;
  }
  return sum;
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  check_interpolate(x, options);
  const bool mixes = options.mode != InterpolateMode::nearest;
  Tensor result = mixes && is_half(x.dtype()) ? x.to(DType::f32) : x;
  for (int dim = 0; dim < x.rank() - 2; ++dim) {
    const Stretch stretch = stretch_of(x, dim, options);
    if (stretch.in == stretch.out && stretch.step == 1) continue;
    if (!mixes) {
      result = nearest(result, dim + 2, stretch);
    } else {
      const auto taps = options.mode == InterpolateMode::linear ? linear_taps : cubic_taps;
      result = mixed(result, dim + 2, taps(stretch, options.align_corners));
    }
  }
  return result.to(x.dtype());
}

}  // namespace dtrain
