#include "runtime/nn/windows/resampling.h"

#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/nn/print.h"

namespace dtrain {
namespace {

/// Kernel, stride and padding of one dimension; stride 0 becomes the kernel's size.
struct Window {
  std::int64_t kernel, stride, padding;

  Window(std::string_view layer, std::int64_t size, std::int64_t step, std::int64_t pad)
      : kernel(size), stride(step == 0 ? size : step), padding(pad) {
    if (size >= 1 && step >= 0 && pad >= 0 && pad * 2 <= size) return;
    throw UsageError(std::string(layer) +
                     ": expected kernel >= 1, stride >= 0 and padding of 0 to kernel / 2, got " +
                     std::to_string(size) + ", " + std::to_string(step) + " and " + std::to_string(pad));
  }
};

Pool1dGeometry geometry_of(std::string_view layer, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding) {
  const Window window(layer, kernel, stride, padding);
  return {PoolKind::avg, window.kernel, window.stride, window.padding};
}

Pool3dGeometry geometry_of(std::string_view layer, const KernelVolume& kernel, const KernelVolume& stride,
                           const KernelVolume& padding) {
  const Window d(layer, kernel.depth, stride.depth, padding.depth),
      h(layer, kernel.height, stride.height, padding.height),
      w(layer, kernel.width, stride.width, padding.width);
  return {PoolKind::avg, d.kernel, h.kernel,  w.kernel,  d.stride,
          h.stride,      w.stride, d.padding, h.padding, w.padding};
}

std::string_view name_of(InterpolateMode mode) {
  if (mode == InterpolateMode::nearest) return "nearest";
  return mode == InterpolateMode::linear ? "bilinear" : "bicubic";
}

std::string repr_of(const Pool3dGeometry& g) {
  return "kernel_size=" + repr::number_or_tuple({g.kernel_d, g.kernel_h, g.kernel_w}) +
         ", stride=" + repr::number_or_tuple({g.stride_d, g.stride_h, g.stride_w}) +
         ", padding=" + repr::number_or_tuple({g.pad_d, g.pad_h, g.pad_w});
}

}  // namespace

AvgPool1d::AvgPool1d(std::int64_t kernel, std::int64_t stride, std::int64_t padding)
    : geometry_(geometry_of("AvgPool1d", kernel, stride, padding)) {}

std::string AvgPool1d::extra_repr() const {
  return "kernel_size=" + repr::tuple({geometry_.kernel}) + ", stride=" + repr::tuple({geometry_.stride}) +
         ", padding=" + repr::tuple({geometry_.pad});
}

AvgPool3d::AvgPool3d(KernelVolume kernel, KernelVolume stride, KernelVolume padding)
    : geometry_(geometry_of("AvgPool3d", kernel, stride, padding)) {}

std::string AvgPool3d::extra_repr() const { return repr_of(geometry_); }

std::string Upsample::extra_repr() const {
  std::string text;
  if (options_.size.rank() == 0 && options_.scale.size() == 1) {
    text = "scale_factor=" + repr::number(options_.scale.front());
  } else if (options_.size.rank() == 0) {
    for (const double scale : options_.scale)
      text.append(text.empty() ? "" : ", ").append(repr::number(scale));
    text = "scale_factor=(" + text + ")";
  } else {
    text = "size=" + repr::tuple(std::span(options_.size.begin(), options_.size.end()));
  }
  text.append(", mode='").append(name_of(options_.mode)).append("'");
  return text;
}

Border::Border(int dims, PadMode mode, const BorderSides& sides, double value)
    : dims_(dims), mode_(mode), amounts_(sides.amounts), value_(value) {
  if (amounts_.rank() == 1) amounts_ = Dims::filled(2 * dims, amounts_[0]);
  if (amounts_.rank() == 2 * dims) return;
  throw UsageError("border: expected one amount for all sides, or " + std::to_string(2 * dims) + ", got " +
                   amounts_.to_string());
}

Tensor Border::forward(const Tensor& x) {
  if (x.rank() != dims_ + 2) {
    throw UsageError("border: expected x [N, C, …] of " + std::to_string(dims_ + 2) + " dimensions, got " +
                     x.describe());
  }
  return mode_ == PadMode::constant ? pad(x, amounts_, value_) : pad(x, amounts_, mode_);
}

std::string Border::extra_repr() const { return repr::tuple(std::span(amounts_.begin(), amounts_.end())); }

std::string ConstantPad1d::extra_repr() const {
  return "padding=" + Border::extra_repr() + ", value=" + repr::number(value());
}

std::string ConstantPad2d::extra_repr() const {
  return "padding=" + Border::extra_repr() + ", value=" + repr::number(value());
}

}  // namespace dtrain
