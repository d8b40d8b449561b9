// The differentiable operations. Each returns a new tensor on the arguments' device; while gradients are
// recorded (see grad_mode.h) the result remembers how it was made. Tensors must share device and dtype: no
// tensor is converted silently but integers beside a fraction or in a quotient, to float32. Every function
// throws UsageError naming itself and both sides when shapes, dtypes or devices do not fit.
//
// Gradients of gradients (create_graph) work through everything here but batch_norm with peers, whose second
// backward throws a UsageError that says so.
#pragma once

#include <memory>
#include <optional>

#include "runtime/autograd/batch_peers.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops/activations.h"
#include "runtime/autograd/ops/convolutions.h"
#include "runtime/autograd/ops/einsum.h"
#include "runtime/autograd/ops/elementary.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/masks.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/autograd/ops/reductions.h"
#include "runtime/tensor/number.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

// ---- arithmetic, element-wise; the two sides broadcast (NumPy's rule)
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// The quotient of integers is float32, as PyTorch's true division.
Tensor div(const Tensor& a, const Tensor& b);
/// Larger or smaller of two; where equal, each gets half of the gradient. NaN wins, and both get all of it.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// Beside a tensor of integers a whole number keeps the dtype, and a double, or a quotient, makes the result
/// float32.
Tensor add(const Tensor& a, Number b);
Tensor sub(const Tensor& a, Number b);
Tensor mul(const Tensor& a, Number b);
Tensor div(const Tensor& a, Number b);
/// Integers have no negative power; throws UsageError.
Tensor pow(const Tensor& a, Number exponent);
/// condition != 0 ? a : b; no gradient to `condition`, which is bool or has the dtype of a and b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// ---- comparisons: 1 or 0 in the operands' dtype, never differentiable. The operators (a == b, a < 1) give
// bool
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);

// ---- functions of one tensor
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
/// x · Φ(x)
Tensor gelu(const Tensor& x);

// ---- reductions. Over all dimensions (the result has shape []), or over `dims` (none: all), kept with
// extent 1 if asked
/// Sums of bool, int32 and smaller integers are int64.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, const Dims& dims, bool keep = false);
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, const Dims& dims, bool keep = false);
/// Largest / smallest; elements that tie share the gradient evenly.
Tensor amax(const Tensor& x, const Dims& dims, bool keep = false);
Tensor amin(const Tensor& x, const Dims& dims, bool keep = false);
/// i64 index of the first largest element along `dim`, which disappears or is kept with extent 1. Not
/// differentiable.
Tensor argmax(const Tensor& x, int dim = -1, bool keep = false);

// ---- shapes: the members of Tensor as functions
Tensor reshape(const Tensor& x, const Dims& shape);
/// [N, …] → [N, product of the rest]; row-major order whatever the memory format.
Tensor flatten(const Tensor& x, int first = 1, int last = -1);

// ---- linear algebra
/// [M, K] · [K, N] → [M, N]; leading dimensions broadcast ([…,
/// M, K] · […, K, N]); a one-dimensional side is a row (left) or a column (right) that disappears from the
/// result. Also int64.
Tensor matmul(const Tensor& a, const Tensor& b);
/// activation(x · wᵀ + bias): x […, K], w [N, K], bias [N] or undefined → […, N].
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation = Activation::none);

// ---- convolution and pooling: x [N, C, H, W]. conv2d's result is channels-last in memory, pooling keeps the
// format of x
/// w [O, C / groups, KH, KW], bias [O] or undefined. Without input channels there are no output channels
/// either, as in PyTorch.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& geometry = {},
              Activation activation = Activation::none);
Tensor pool2d(const Tensor& x, const Pool2dGeometry& geometry);
/// pool2d(relu(conv2d(x))) in one kernel where can_fuse_pool(pool): faster, and without the memory of the
/// convolution's output. Elsewhere the same as the three in turn.
Tensor conv2d_relu_pool2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dGeometry& conv,
                          const Pool2dGeometry& pool);
/// Square windows; stride = kernel.
Tensor max_pool2d(const Tensor& x, std::int64_t kernel);
Tensor avg_pool2d(const Tensor& x, std::int64_t kernel);

/// Average over windows that cut [H, W] into height × width parts, as torch's adaptive_avg_pool2d: where the
/// extents do not divide, neighbouring windows overlap.
Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t height, std::int64_t width);

// ---- normalisation
/// activation((x - mean) / √(variance + eps) · weight + bias + residual) for each channel of x [N, C, H, W].
/// weight, bias and the running statistics are [C], float32 (float64 where x is), the latter may be
/// undefined. `training`: mean and variance are those of this batch, and the running ones move towards them;
/// else the running ones are used. An empty batch changes nothing. `residual` has x's shape, or is undefined.
///
/// With `peers`, x is this rank's part of a batch and training takes the statistics of the whole, forward and
/// backward, as torch.nn.SyncBatchNorm does: parts may differ in N, and the running statistics move on all
/// ranks alike. Gradients of weight and bias are those of this part, to be averaged like any other. Every
/// rank must then call it, and run its backward, in the same order.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormRule& rule, bool training,
                  const Tensor& residual = {}, const std::shared_ptr<BatchPeers>& peers = nullptr);

// ---- losses and what they are made of
/// batch_mean: the sum over the first extent, as KL divergence is averaged.
enum class LossReduction { mean, sum, none, batch_mean };
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);
/// logits [N, C, …]; target i64 [N, …], class indices in [0, C) or `ignore_index`. Result [] or [N, …].
/// Ignored elements have loss and gradient 0 and do not count in the mean (with none left it is NaN). torch
/// ignores -100 unless told otherwise; here nothing is ignored unless told so. A target of logits' shape and
/// dtype has the classes' probabilities. Weights and label smoothing: ops/losses.h.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     LossReduction reduction = LossReduction::mean,
                     std::optional<std::int64_t> ignore_index = std::nullopt);
/// (prediction - target)²; both of one shape.
Tensor mse_loss(const Tensor& prediction, const Tensor& target,
                LossReduction reduction = LossReduction::mean);

}  // namespace dtrain
