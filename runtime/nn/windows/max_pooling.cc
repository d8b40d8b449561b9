// MaxPool1d, 2d and 3d: windows are checked when a layer is made.
#include <algorithm>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/print.h"
#include "runtime/nn/windows/resampling.h"

namespace dtrain {
namespace {

Dims dims_of(KernelSize size) { return {size.height, size.width}; }
Dims dims_of(const KernelVolume& size) { return {size.depth, size.height, size.width}; }

/// As torch's pooling shows it: one number where all are equal.
std::string text_of(const Dims& dims) {
  const bool equal = std::all_of(dims.begin(), dims.end(), [&](std::int64_t v) { return v == dims[0]; });
  return equal ? std::to_string(dims[0]) : repr::tuple(std::span(dims.begin(), dims.end()));
}

/// A stride of 0 becomes the kernel's extent.
MaxPoolOptions checked(std::string_view layer, const Dims& kernel, const Dims& stride, const Dims& padding,
                       const Dims& dilation) {
  MaxPoolOptions options{kernel, stride, padding, dilation};
  for (int i = 0; i < kernel.rank(); ++i) {
    if (kernel[i] < 1 || stride[i] < 0 || dilation[i] < 1 || padding[i] < 0 || padding[i] * 2 > kernel[i]) {
      throw UsageError(
          std::string(layer) +
          ": expected kernel >= 1, stride >= 0, padding of 0 to kernel / 2 and dilation >= 1, got " +
          text_of(kernel) + ", " + text_of(stride) + ", " + text_of(padding) + " and " + text_of(dilation));
    }
    if (stride[i] == 0) options.stride[i] = kernel[i];
  }
  return options;
}

std::string repr_of(const MaxPoolOptions& options) {
  return "kernel_size=" + text_of(options.kernel) + ", stride=" + text_of(options.stride) +
         ", padding=" + text_of(options.padding) + ", dilation=" + text_of(options.dilation) +
         ", ceil_mode=False";
}

Tensor pooled(std::string_view layer, std::string_view shape, const Tensor& x,
              const MaxPoolOptions& options) {
  if (x.rank() == options.kernel.rank() + 2) return max_pool(x, options);
  throw UsageError(std::string(layer) + ": expected x " + std::string(shape) + ", got " + x.describe());
}

}  // namespace

MaxPool1d::MaxPool1d(std::int64_t kernel, std::int64_t stride, std::int64_t padding, std::int64_t dilation)
    : options_(checked("MaxPool1d", {kernel}, {stride}, {padding}, {dilation})) {}

Tensor MaxPool1d::forward(const Tensor& x) { return pooled("MaxPool1d", "[N, C, L]", x, options_); }

std::string MaxPool1d::extra_repr() const { return repr_of(options_); }

MaxPool2d::MaxPool2d(KernelSize kernel, KernelSize stride, KernelSize padding, KernelSize dilation)
    : options_(checked("MaxPool2d", dims_of(kernel), dims_of(stride), dims_of(padding), dims_of(dilation))) {}

Tensor MaxPool2d::forward(const Tensor& x) { return pooled("MaxPool2d", "[N, C, H, W]", x, options_); }

std::string MaxPool2d::extra_repr() const { return repr_of(options_); }

MaxPool3d::MaxPool3d(KernelVolume kernel, KernelVolume stride, KernelVolume padding, KernelVolume dilation)
    : options_(checked("MaxPool3d", dims_of(kernel), dims_of(stride), dims_of(padding), dims_of(dilation))) {}

Tensor MaxPool3d::forward(const Tensor& x) { return pooled("MaxPool3d", "[N, C, D, H, W]", x, options_); }

std::string MaxPool3d::extra_repr() const { return repr_of(options_); }

}  // namespace dtrain
