// Initial values: PyTorch's defaults for new layers, and those of torch.nn.init for tensors that are there.
// One draw an element in row-major order.
#pragma once

#include "runtime/tensor/defaults.h"
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

/// torch.nn.init: writes new values over a tensor, parameters too, in its dtype (float32 or float64), without
/// a trace in autograd. The uniform ones are PyTorch's bit for bit, normal ones as Generator::normal says.
/// Throws UsageError for weights of fewer than two dimensions where fans count, and for deviations and gains
/// that are negative or not finite.
///
///     network.apply([](Module& module) {
///       if (auto* const linear = dynamic_cast<Linear*>(&module)) init::xavier_uniform_(linear->weight());
///     });
namespace init {

/// What a weight [out, in / groups, kernel …] is divided by: values that one output, or one input, meets.
enum class Fan { in, out };
/// The function behind a layer, for its gain.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };

void constant_(const Tensor& tensor, double value);
void zeros_(const Tensor& tensor);
void ones_(const Tensor& tensor);
void uniform_(const Tensor& tensor, double low = 0, double high = 1,
              Generator& generator = default_generator());
void normal_(const Tensor& tensor, double mean = 0, double deviation = 1,
             Generator& generator = default_generator());

/// U(±√3 · d) and N(0, d²) with d = gain · √(2 / (fan_in + fan_out)) (Glorot and Bengio 2010).
void xavier_uniform_(const Tensor& weight, double gain = 1, Generator& generator = default_generator());
void xavier_normal_(const Tensor& weight, double gain = 1, Generator& generator = default_generator());

struct KaimingOptions {
  double negative_slope = 0;  ///< of leaky_relu
  Fan fan = Fan::in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
/// U(±√3 · d) and N(0, d²) with d = gain / √fan (He et al. 2015).
void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options = {},
                      Generator& generator = default_generator());
void kaiming_normal_(const Tensor& weight, const KaimingOptions& options = {},
                     Generator& generator = default_generator());

/// 1, 5 / 3 (tanh), √2 (relu), √(2 / (1 + negative_slope²)) (leaky_relu) or 3 / 4 (selu).
double gain_of(Nonlinearity nonlinearity, double negative_slope = 0.01);

}  // namespace init
}  // namespace dtrain
