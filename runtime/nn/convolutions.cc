#include "runtime/nn/convolutions.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/nn/init.h"
#include "runtime/nn/print.h"

namespace dtrain {
namespace {

/// [first, second / groups, kernel …]. Throws UsageError naming `layer`.
Dims weight_shape(std::string_view layer, std::int64_t first, std::int64_t second, const Dims& kernel,
                  std::int64_t groups) {
  const bool has_kernel =
      std::all_of(kernel.begin(), kernel.end(), [](std::int64_t side) { return side >= 1; });
  if (first < 1 || second < 1 || !has_kernel || groups < 1 || first % groups != 0 || second % groups != 0) {
    throw UsageError(
        std::string(layer) +
        ": expected channels and a kernel of at least 1 and groups that divide the channels, got " +
        std::to_string(first) + " and " + std::to_string(second) + ", kernel " + kernel.to_string() +
        " and groups " + std::to_string(groups));
  }
  Dims shape{first, second / groups};
  for (const std::int64_t side : kernel) shape.push_back(side);
  return shape;
}

Dims dims_of(const KernelVolume& size) { return {size.depth, size.height, size.width}; }

/// Extents behind the first two.
Dims kernel_of(const Tensor& weight) {
  return Dims(std::span(weight.shape().begin() + 2, weight.shape().end()));
}

}  // namespace

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv1dOptions options)
    : geometry_(options.geometry) {
  const Dims shape = weight_shape("Conv1d", out, in, {kernel}, geometry_.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Conv1d::Conv1d(std::int64_t in, std::int64_t out, const Conv1dSettings& given, Generator& generator,
               const std::shared_ptr<Device>& device)
    : Conv1d(in, out, given.kernel, generator, device,
             {.geometry = {given.stride, given.padding, given.dilation, given.groups}, .bias = given.bias}) {}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight_, bias_, geometry_); }

std::string Conv1d::extra_repr() const {
  const Conv1dGeometry& g = geometry_;
  return repr::convolution({.in = weight_.size(1) * g.groups,
                            .out = weight_.size(0),
                            .kernel = kernel_of(weight_),
                            .stride = {g.stride},
                            .padding = {g.pad},
                            .dilation = {g.dilation},
                            .groups = g.groups,
                            .bias = bias_.defined()});
}

Conv3d::Conv3d(std::int64_t in, std::int64_t out, KernelVolume kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv3dOptions options)
    : geometry_(options.geometry) {
  const Dims shape =
      weight_shape("Conv3d", out, in, {kernel.depth, kernel.height, kernel.width}, geometry_.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Conv3d::Conv3d(std::int64_t in, std::int64_t out, const Conv3dSettings& given, Generator& generator,
               const std::shared_ptr<Device>& device)
    : Conv3d(in, out, given.kernel, generator, device,
             {.geometry = {given.stride.depth, given.stride.height, given.stride.width, given.padding.depth,
                           given.padding.height, given.padding.width, given.dilation.depth,
                           given.dilation.height, given.dilation.width, given.groups},
              .bias = given.bias}) {}

Tensor Conv3d::forward(const Tensor& x) { return conv3d(x, weight_, bias_, geometry_); }

std::string Conv3d::extra_repr() const {
  const Conv3dGeometry& g = geometry_;
  return repr::convolution({.in = weight_.size(1) * g.groups,
                            .out = weight_.size(0),
                            .kernel = kernel_of(weight_),
                            .stride = {g.stride_d, g.stride_h, g.stride_w},
                            .padding = {g.pad_d, g.pad_h, g.pad_w},
                            .dilation = {g.dilation_d, g.dilation_h, g.dilation_w},
                            .groups = g.groups,
                            .bias = bias_.defined()});
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in, std::int64_t out, const ConvTranspose1dSettings& settings,
                                 Generator& generator, const std::shared_ptr<Device>& device)
    : settings_(settings) {
  const Dims shape = weight_shape("ConvTranspose1d", in, out, {settings.kernel}, settings.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (settings.bias) bias_ = add_parameter("bias", init_bias(shape, out, generator, device));
}

Tensor ConvTranspose1d::forward(const Tensor& x) {
  return conv_transpose1d(x, weight_, bias_,
                          {settings_.stride, settings_.padding, settings_.dilation, settings_.groups},
                          settings_.output_padding);
}

std::string ConvTranspose1d::extra_repr() const {
  return repr::convolution({.in = weight_.size(0),
                            .out = weight_.size(1) * settings_.groups,
                            .kernel = kernel_of(weight_),
                            .stride = {settings_.stride},
                            .padding = {settings_.padding},
                            .dilation = {settings_.dilation},
                            .output_padding = {settings_.output_padding},
                            .groups = settings_.groups,
                            .bias = bias_.defined()});
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, KernelSize kernel, Generator& generator,
                                 const std::shared_ptr<Device>& device, ConvTranspose2dOptions options)
    : options_(options) {
  const Dims shape =
      weight_shape("ConvTranspose2d", in, out, {kernel.height, kernel.width}, options.geometry.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, out, generator, device));
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, const ConvTranspose2dSettings& given,
                                 Generator& generator, const std::shared_ptr<Device>& device)
    : ConvTranspose2d(
          in, out, given.kernel, generator, device,
          {.geometry = {given.stride.height, given.stride.width, given.padding.height, given.padding.width,
                        given.dilation.height, given.dilation.width, given.groups},
           .output_padding = given.output_padding,
           .bias = given.bias}) {}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight_, bias_, options_.geometry, options_.output_padding.height,
                          options_.output_padding.width);
}

std::string ConvTranspose2d::extra_repr() const {
  const Conv2dGeometry& g = options_.geometry;
  return repr::convolution({.in = weight_.size(0),
                            .out = weight_.size(1) * g.groups,
                            .kernel = kernel_of(weight_),
                            .stride = {g.stride_h, g.stride_w},
                            .padding = {g.pad_h, g.pad_w},
                            .dilation = {g.dilation_h, g.dilation_w},
                            .output_padding = {options_.output_padding.height, options_.output_padding.width},
                            .groups = g.groups,
                            .bias = bias_.defined()});
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in, std::int64_t out, const ConvTranspose3dSettings& settings,
                                 Generator& generator, const std::shared_ptr<Device>& device)
    : settings_(settings) {
  const Dims shape = weight_shape("ConvTranspose3d", in, out, dims_of(settings.kernel), settings.groups);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (settings.bias) bias_ = add_parameter("bias", init_bias(shape, out, generator, device));
}

Tensor ConvTranspose3d::forward(const Tensor& x) {
  const KernelVolume &stride = settings_.stride, &pad = settings_.padding, &dilation = settings_.dilation,
                     &more = settings_.output_padding;
  return conv_transpose3d(x, weight_, bias_,
                          {stride.depth, stride.height, stride.width, pad.depth, pad.height, pad.width,
                           dilation.depth, dilation.height, dilation.width, settings_.groups},
                          {more.depth, more.height, more.width});
}

std::string ConvTranspose3d::extra_repr() const {
  return repr::convolution({.in = weight_.size(0),
                            .out = weight_.size(1) * settings_.groups,
                            .kernel = kernel_of(weight_),
                            .stride = dims_of(settings_.stride),
                            .padding = dims_of(settings_.padding),
                            .dilation = dims_of(settings_.dilation),
                            .output_padding = dims_of(settings_.output_padding),
                            .groups = settings_.groups,
                            .bias = bias_.defined()});
}

}  // namespace dtrain
