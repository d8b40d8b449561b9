// The functions of ops/pooling.h: views of what pool2d does.
#include "runtime/autograd/ops/pooling.h"

#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_rank(std::string_view name, const Tensor& x, int rank, std::string_view shape) {
  if (x.rank() == rank) return;
  throw UsageError(std::string(name) + ": expected x " + std::string(shape) + ", got " + x.describe());
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

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t length) {
  check_rank("adaptive_avg_pool1d", x, 3, "[N, C, L]");
  return adaptive_avg_pool2d(x.unsqueeze(2), 1, length).squeeze(2);
}

}  // namespace dtrain
