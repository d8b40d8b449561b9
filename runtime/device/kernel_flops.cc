#include "runtime/device/kernel_flops.h"

namespace dtrain {
namespace {

// Of one element of a convolution's output.
double taps_flops(const View& weight) noexcept {
  return 2.0 * static_cast<double>(weight.shape[1] * weight.shape[2] * weight.shape[3]);
}

double window(const Pool2dGeometry& pool) noexcept {
  return static_cast<double>(pool.kernel_h * pool.kernel_w);
}

}  // namespace

double matmul_flops(const View& a, const View& out) noexcept {
  return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(a.shape.back());
}

double conv2d_flops(const View& weight, const View& output) noexcept {
  return static_cast<double>(output.numel()) * taps_flops(weight);
}

double conv2d_pool2d_flops(const Pool2dGeometry& pool, const View& weight, const View& output) noexcept {
  return conv2d_flops(weight, output) * window(pool);
}

double conv2d_pool2d_backward_flops(const Pool2dGeometry& pool, const View& weight, const View& grad_output,
                                    bool wants_input) noexcept {
  const double places = pool.kind == PoolKind::max ? 1 : window(pool);
  return conv2d_flops(weight, grad_output) * places * (wants_input ? 2 : 1);
}

}  // namespace dtrain
