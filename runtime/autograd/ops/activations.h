// Element-wise functions that networks put between their layers, and powers, as torch.nn.functional has them.
#pragma once

#include <optional>

#include "runtime/tensor/number.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// x where x > 0, else negative_slope · x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where x > 0, else weight · x. `weight` has one element, or as many as x [N, C, …] has channels; it is
/// learned.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// gelu by the hyperbolic tangent, as GPT-2 has it: x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 x³))).
Tensor gelu_tanh(const Tensor& x);
/// silu(gate) · x, of one shape (SwiGLU, Shazeer 2020): in one pass.
Tensor silu_mul(const Tensor& gate, const Tensor& x);
/// x · sigmoid(x)
Tensor silu(const Tensor& x);
/// x / (1 + |x|)
Tensor softsign(const Tensor& x);
/// log(1 + exp(beta · x)) / beta, and x itself where beta · x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
/// x no smaller than `min` and no larger than `max` (if both cross, `max`); at least one is given. Gradients
/// pass where x was between them, not on them. Bounds beside integers: as numbers in arithmetic (ops.h).
Tensor clamp(const Tensor& x, std::optional<Number> min, std::optional<Number> max = std::nullopt);
/// base ^ exponent, broadcasting. No gradient to an exponent where base is 0 and exponent at least 0.
Tensor pow(const Tensor& base, const Tensor& exponent);

}  // namespace dtrain
