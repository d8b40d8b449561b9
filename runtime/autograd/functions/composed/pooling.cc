// The functions of ops/pooling.h: views of what pool2d does.
#include "runtime/autograd/ops/pooling.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_rank(std::string_view name, const Tensor& x, int rank, std::string_view shape) {
  if (x.rank() == rank) return;
  throw UsageError(std::string(name) + ": expected x " + std::string(shape) + ", got " + x.describe());
}

/// Of one dimension.
struct Window {
  std::int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;

  std::int64_t span() const { return (kernel - 1) * dilation + 1; }
};

std::vector<Window> windows_of(const Tensor& x, const MaxPoolOptions& options) {
  const int dims = x.rank() - 2;
  const auto fits = [dims](const Dims& given) { return given.rank() == 0 || given.rank() == dims; };
  if (dims < 1 || dims > 3 || options.kernel.rank() != dims || !fits(options.stride) ||
      !fits(options.padding) || !fits(options.dilation)) {
    throw UsageError(
        "max_pool: expected x [N, C, L], [N, C, H, W] or [N, C, D, H, W] and a kernel, stride, padding and "
        "dilation for each dimension behind C, got " +
        x.describe() + ", kernel " + options.kernel.to_string() + ", stride " + options.stride.to_string() +
        ", padding " + options.padding.to_string() + " and dilation " + options.dilation.to_string());
  }
  std::vector<Window> windows;
  for (int i = 0; i < dims; ++i) {
    const auto or_else = [i](const Dims& given, std::int64_t otherwise) {
      return given.rank() == 0 ? otherwise : given[i];
    };
    const Window window{options.kernel[i], or_else(options.stride, options.kernel[i]),
                        or_else(options.padding, 0), or_else(options.dilation, 1)};
    const bool is_window = window.kernel >= 1 && window.stride >= 1 && window.dilation >= 1 &&
                           window.pad >= 0 && window.pad * 2 <= window.kernel;
    if (!is_window || x.size(i + 2) + 2 * window.pad < window.span()) {
      throw UsageError(
          "max_pool: expected a kernel, stride and dilation of at least 1, padding of at most half of the "
          "kernel, and a window that fits into x, got kernel " +
          std::to_string(window.kernel) + ", stride " + std::to_string(window.stride) + ", padding " +
          std::to_string(window.pad) + " and dilation " + std::to_string(window.dilation) + " in dimension " +
          std::to_string(i + 2) + " of " + x.describe());
    }
    windows.push_back(window);
  }
  return windows;
}

/// Each window's elements side by side, pooled by windows that lie side by side.
Tensor max_pooled_along(const Tensor& x, int dim, const Window& window) {
  if (window.kernel == 1 && window.stride == 1) return x;
  std::int64_t before = 1, after = 1;
  for (int i = 1; i < dim; ++i) before *= x.size(i);
  for (int i = dim + 1; i < x.rank(); ++i) after *= x.size(i);
  Tensor planes = x.reshape({x.size(0), before, x.size(dim), after});
  if (window.pad > 0) planes = pad(planes, {0, 0, window.pad, window.pad}, -INFINITY);
  const std::int64_t count = (planes.size(2) - window.span()) / window.stride + 1;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = 0; k < window.kernel; ++k)
      places.push_back(i * window.stride + k * window.dilation);
  }
  const auto picks = static_cast<std::int64_t>(places.size());
  const Tensor picked = planes.index_select(2, Tensor::from_data(places, {picks}, x.shared_device()));
  Dims shape = x.shape();
  shape[dim] = count;
  return pool2d(picked, {PoolKind::max, window.kernel, 1, window.kernel, 1, 0, 0}).reshape(shape);
}

}  // namespace

Tensor pool1d(const Tensor& x, const Pool1dGeometry& g) {
  check_rank("pool1d", x, 3, "[N, C, L]");
  return pool2d(x.unsqueeze(2), {g.kind, 1, g.kernel, 1, g.stride, 0, g.pad}).squeeze(2);
}

Tensor pool3d(const Tensor& x, const Pool3dGeometry& g) {
  check_rank("pool3d", x, 5, "[N, C, D, H, W]");
  const std::int64_t n = x.size(0), c = x.size(1), d = x.size(2);
  const Tensor frames = pool2d(x.reshape({n, c * d, x.size(3), x.size(4)}),
                               {g.kind, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.pad_h, g.pad_w});
  const std::int64_t h = frames.size(2), w = frames.size(3);
  const Tensor y =
      pool2d(frames.reshape({n, c, d, h * w}), {g.kind, g.kernel_d, 1, g.stride_d, 1, g.pad_d, 0});
  return y.reshape({n, c, y.size(2), h, w});
}

Tensor max_pool(const Tensor& x, const MaxPoolOptions& options) {
  const std::vector<Window> windows = windows_of(x, options);
  const auto is_dilated = [](const Window& window) { return window.dilation != 1 && window.kernel != 1; };
  if (std::ranges::any_of(windows, is_dilated)) {
    // The last dimension first: what wins a tie is then the first of a window in row-major order.
    Tensor result = x;
    for (int dim = x.rank() - 1; dim >= 2; --dim)
      result = max_pooled_along(result, dim, windows[static_cast<std::size_t>(dim - 2)]);
    return result;
  }
  const Window &a = windows.front(), &b = windows[windows.size() / 2], &c = windows.back();
  const PoolKind max = PoolKind::max;
  if (x.rank() == 3) return pool1d(x, {max, a.kernel, a.stride, a.pad});
  if (x.rank() == 4) return pool2d(x, {max, a.kernel, c.kernel, a.stride, c.stride, a.pad, c.pad});
  return pool3d(x, {max, a.kernel, b.kernel, c.kernel, a.stride, b.stride, c.stride, a.pad, b.pad, c.pad});
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t length) {
  check_rank("adaptive_avg_pool1d", x, 3, "[N, C, L]");
  return adaptive_avg_pool2d(x.unsqueeze(2), 1, length).squeeze(2);
}

}  // namespace dtrain
