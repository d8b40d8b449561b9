#include "runtime/nn/convolutions.h"

#include <string>

#include "runtime/base/error.h"
#include "runtime/nn/init.h"

namespace dtrain {
namespace {

/// [first, second / groups, kernel, …], `dims` times the kernel. Throws UsageError naming `layer`.
Dims weight_shape(std::string_view layer, std::int64_t first, std::int64_t second, std::int64_t kernel,
                  std::int64_t groups, int dims) {
  if (first < 1 || second < 1 || kernel < 1 || groups < 1 || first % groups != 0 || second % groups != 0) {
    throw UsageError(
        std::string(layer) +
        ": expected channels and a kernel of at least 1 and groups that divide the channels, got " +
        std::to_string(first) + " and " + std::to_string(second) + ", kernel " + std::to_string(kernel) +
        " and groups " + std::to_string(groups));
  }
  Dims shape{first, second / groups};
  for (int i = 0; i < dims; ++i) shape.push_back(kernel);
  return shape;
}

}  // namespace

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv1dOptions options)
    : geometry_(options.geometry) {
  const Dims shape = weight_shape("Conv1d", out, in, kernel, geometry_.groups, 1);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight_, bias_, geometry_); }

Conv3d::Conv3d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
               const std::shared_ptr<Device>& device, Conv3dOptions options)
    : geometry_(options.geometry) {
  const Dims shape = weight_shape("Conv3d", out, in, kernel, geometry_.groups, 3);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, generator, device));
}

Tensor Conv3d::forward(const Tensor& x) { return conv3d(x, weight_, bias_, geometry_); }

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
                                 const std::shared_ptr<Device>& device, ConvTranspose2dOptions options)
    : options_(options) {
  const Dims shape = weight_shape("ConvTranspose2d", in, out, kernel, options.geometry.groups, 2);
  weight_ = add_parameter("weight", init_weight(shape, generator, device));
  if (options.bias) bias_ = add_parameter("bias", init_bias(shape, out, generator, device));
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight_, bias_, options_.geometry, options_.output_padding,
                          options_.output_padding);
}

}  // namespace dtrain
