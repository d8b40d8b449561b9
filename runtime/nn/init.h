// PyTorch's default initial values. One draw an element in row-major order.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Weight of a Linear [out, in] or convolution [out, in / groups, KH, KW]: kaiming_uniform with a = √5, that
/// is U(-b, b), b = √3 · (√(2 / (1 + 5)) / √fan_in), evaluated in double in that order.
Tensor init_weight(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device);

/// Bias [out] of a layer whose weight has shape `weight_shape`: U(±1 / √fan_in).
Tensor init_bias(const Dims& weight_shape, Generator& generator, const std::shared_ptr<Device>& device);
/// The same of another extent: a transposed convolution's weight begins with the inputs.
Tensor init_bias(const Dims& weight_shape, std::int64_t extent, Generator& generator,
                 const std::shared_ptr<Device>& device);

/// torch.nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu") of a convolution's weight: by
/// Box and Muller in blocks of 16 like PyTorch's, whose last bits depend on the processor. Needs at least 16
/// elements.
Tensor init_fan_out_normal(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device);

/// Product of all extents but the first. Throws UsageError for fewer than two dimensions.
std::int64_t fan_in(const Dims& weight_shape);

}  // namespace dtrain
