// The table of kernels a device provides. Every array arrives as a View that the caller has shaped: outputs
// are allocated, broadcasting is expressed by zero strides, dtypes already agree. Kernels run on the device's
// compute stream, in call order; on the CPU they have finished when they return.
//
// Unless a function says otherwise: all views have the same floating dtype (f32 everywhere; f64 and bf16
// where the device has them, else UsageError naming operation and dtype), and outputs must not overlap inputs
// except when an element-wise output is exactly one of its inputs.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/device/view.h"

namespace dtrain {

enum class UnaryOp {
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  reciprocal,
  relu,
  sigmoid,
  tanh,
  gelu,
  sign,
  square,
  round_half /* to the nearest float16 */
};
enum class BinaryOp {
  add,
  sub,
  mul,
  div,
  pow,
  max,
  min,
  relu_grad /* a·[b>0] */,
  equal,
  greater,
  greater_equal,
  less
};
enum class Reduction { sum, mean, max, min };
enum class PoolKind { max, avg };
enum class Activation { none, relu };

/// Geometry of a 2-D convolution. Shapes: input [N, C, H, W], weight [O, C / groups, KH, KW], bias [O],
/// output [N, O, OH, OW].
struct Conv2dGeometry {
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  bool operator==(const Conv2dGeometry&) const = default;
};

/// Geometry of 2-D pooling; average pooling divides by the full window (count_include_pad).
struct Pool2dGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t kernel_h = 2, kernel_w = 2;
  std::int64_t stride_h = 2, stride_w = 2;
  std::int64_t pad_h = 0, pad_w = 0;
  bool operator==(const Pool2dGeometry&) const = default;
};

/// Whether conv2d_relu_pool2d takes this pooling: no padding, windows that do not overlap, of at most 8
/// elements (one mask bit each).
constexpr bool can_fuse_pool(const Pool2dGeometry& pool) noexcept {
  return pool.pad_h == 0 && pool.pad_w == 0 && pool.stride_h >= pool.kernel_h &&
         pool.stride_w >= pool.kernel_w && pool.kernel_h * pool.kernel_w <= 8;
}

/// torch.nn.BatchNorm2d's rule over [N, C, H, W]: each channel is normalised by its own mean and biased
/// variance; running = (1 - momentum) · running + momentum · batch, with the unbiased variance.
struct BatchNormRule {
  double eps = 1e-5;
  double momentum = 0.1;
  Activation activation = Activation::none;
};

/// The per-channel arrays of a batch normalisation, each [C] and dense: f32, or f64 where the activations
/// are.
struct BatchNormChannels {
  View weight, bias;
  View running_mean, running_var;  ///< training: updated, null data when there are none
  View mean, inv_std;              ///< of this batch: training forward writes, backward reads
};

/// One parameter of a fused optimizer step; views are dense, of one shape. State views may have null data
/// when unused.
struct OptimizerSlot {
  View param;     ///< updated in place
  View grad;      ///< read only
  View momentum;  ///< SGD: buf; AdamW: m
  View variance;  ///< AdamW: v
};

/// Whether a step happens, as the device alone may know: null data in both means always. A skipped step
/// leaves everything as it is.
struct StepGate {
  View skip;     ///< f32 [1]: the step is skipped when this is not 0
  View skipped;  ///< i64 [1]: steps skipped before this one
};

/// Dynamic loss scaling: torch's GradScaler rule.
struct LossScaleRule {
  double growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  ///< clean steps in a row before the scale grows
};

/// Its state, one element each.
struct LossScaleState {
  View scale;    ///< f32
  View tracker;  ///< i64: clean steps in a row
  View found;    ///< f32: not 0 when a gradient of this step was not finite
  View skipped;  ///< i64
};

/// What changes between the runs of an optimizer step that is recorded once (Device::record): f64 [2], the
/// learning rate and how many steps came after the one that was recorded. Null data: nothing, the numbers of
/// the step count. Otherwise they are read when the step runs: the rate in place of `lr`, the other added to
/// `attempts` (if not negative) or `step`.
struct StepChanges {
  View values;
};

/// torch.optim.SGD's rule; `first_step` says that no momentum buffer exists yet (buf = g, dampening not
/// applied).
struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;
  /// With a gate: earlier steps since the buffers were made. They count as empty while all were skipped.
  std::int64_t attempts = -1;
  StepGate gate = {};
  StepChanges changes = {};
};

/// torch.optim.AdamW's rule; `step` counts from 1, steps skipped by the gate included.
struct AdamWStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  std::int64_t step = 1;
  StepGate gate = {};
  StepChanges changes = {};
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // ---- element-wise; `out` dense or strided, inputs broadcast to its shape by strides
  virtual void fill(const View& out, double value) = 0;
  /// Copies with any strides and any pair of dtypes (casting as static_cast does; to bf16 rounds to nearest
  /// even).
  virtual void copy(const View& in, const View& out) = 0;
  /// out = scale · in + shift, casting; u8 → f32 pixels use it.
  virtual void affine(const View& in, double scale, double shift, const View& out) = 0;
  virtual void unary(UnaryOp op, const View& in, const View& out) = 0;
  /// Arithmetic also on i64. Comparisons write 1 or 0 in the inputs' dtype.
  virtual void binary(BinaryOp op, const View& a, const View& b, const View& out) = 0;
  /// out = condition != 0 ? a : b
  virtual void where(const View& condition, const View& a, const View& b, const View& out) = 0;
  /// out += in · scale; `out` dense.
  virtual void accumulate(const View& in, double scale, const View& out) = 0;

  // ---- reductions and indexing
  /// `out` has `in`'s rank with extent 1 in every reduced dimension. f32 sums are accumulated pairwise or
  /// wider.
  virtual void reduce(Reduction op, const View& in, const View& out) = 0;
  /// Index (i64) of the first largest element along the last dimension; `out` has extent 1 there.
  virtual void argmax(const View& in, const View& out) = 0;
  /// out[i, …] = in[index[i], …]; index i64 [n]. Throws UsageError for an index outside in.shape[0].
  virtual void index_select(const View& in, const View& index, const View& out) = 0;
  /// out[index[i], …] += in[i, …], in index order (deterministic).
  virtual void index_add(const View& in, const View& index, const View& out) = 0;

  // ---- linear algebra
  /// out and bias may be f32 where a and b are bf16.
  /// out[b] = act(a[b] · b[b] + bias), beta = 0; with accumulate, out[b] += a[b] · b[b].
  /// a [B, M, K], b [B, K, N], out [B, M, N] dense; a and b may be transposed through their strides or
  /// broadcast in B (stride 0). bias [N] or null data.
  virtual void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
                      const View& out) = 0;

  // ---- convolution and pooling; activations dense, contiguous or channels-last (fastest)
  /// Where activations and weights are bf16, biases and the gradients of weights and biases may be f32.
  virtual void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
                      Activation activation, const View& output) = 0;
  virtual void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output,
                                     const View& weight, const View& grad_input) = 0;
  /// grad_bias may have null data.
  virtual void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input,
                                      const View& grad_output, const View& grad_weight,
                                      const View& grad_bias) = 0;
  /// Max pooling records in `indices` (u8 or i32, output's shape and layout) what backward needs; null data
  /// otherwise.
  virtual void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
                      const View& indices) = 0;
  virtual void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                               const View& grad_input) = 0;

  /// output = pool(relu(conv(input))) without ever holding the convolution's whole output, and without
  /// computing what pooling does not read. output [N, O, PH, PW]; `mask` (u8, output's shape and layout)
  /// keeps what backward needs, its content is the device's own; null data when there will be no backward.
  /// Throws UsageError unless can_fuse_pool(pool).
  virtual void conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                  const View& weight, const View& bias, const View& output,
                                  const View& mask) = 0;
  /// Gradients of the above. grad_input and grad_bias may have null data when not wanted.
  virtual void conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                           const View& input, const View& weight, const View& grad_output,
                                           const View& mask, const View& grad_input, const View& grad_weight,
                                           const View& grad_bias) = 0;

  // ---- normalisation; activations f32, bf16 or f64, dense, contiguous or channels-last (fastest)
  /// output = act((input - mean) · inv_std · weight + bias + residual); residual has output's shape and
  /// layout, or null data. Statistics are kept in f32 (f64 for f64) whatever the activations are.
  virtual void batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                          const View& residual, const View& output) = 0;
  /// The same with the running statistics, which stay as they are; `mean` and `inv_std` are not touched.
  virtual void batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                    const View& input, const View& residual, const View& output) = 0;
  /// Gradients of batch_norm. `output` is what forward wrote, needed where there is an activation.
  /// grad_residual gets the gradient of the residual, null data when there was none; grad_weight and
  /// grad_bias [C] have the dtype of the channels.
  virtual void batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                   const View& input, const View& output, const View& grad_output,
                                   const View& grad_input, const View& grad_residual, const View& grad_weight,
                                   const View& grad_bias) = 0;

  // ---- the two above in steps, for a batch whose parts are on several devices. What the parts exchange is
  // f64 [2C + 1]: the values a channel has, then two numbers for each channel, the first of all channels
  // first
  /// moments: each channel's mean, then its sum of squared differences from that mean. Any number of values.
  virtual void batch_norm_moments(const View& input, const View& moments) = 0;
  /// Combines the moments of P parts, `parts` f64 [P, 2C + 1], in their order (Chan, Golub and LeVeque,
  /// "Updating formulae and a pairwise algorithm for computing sample variances", 1979). Writes channels.mean
  /// and inv_std and moves the running statistics where there are any. The CPU throws UsageError where the
  /// parts have fewer than two values a channel.
  virtual void batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                                  const View& parts) = 0;
  /// The output of batch_norm by channels.mean and inv_std; no statistics change.
  virtual void batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels,
                                const View& input, const View& residual, const View& output) = 0;
  /// sums: each channel's sum of the gradient behind the activation, then of its products with input - mean.
  /// Writes this part's grad_residual, grad_weight and grad_bias as batch_norm_backward does; each may have
  /// null data. `output` has null data where there is no activation.
  virtual void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                                    const View& grad_output, const View& grad_residual,
                                    const View& grad_weight, const View& grad_bias, const View& sums) = 0;
  /// The gradient of the input, with `sums` added up over the parts. `output` has null data where there is no
  /// activation, or where `grad_output` is the gradient behind it already (grad_residual).
  virtual void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                                     const View& output, const View& grad_output, const View& grad_input) = 0;

  // ---- losses
  /// log_softmax along the last dimension of [R, C].
  virtual void log_softmax(const View& in, const View& out) = 0;
  /// losses[r] = -log_softmax(logits)[r, target[r]]; keeps log-probabilities for backward. logits, log_probs
  /// [R, C]; target i64 [R]; losses [R]. Throws UsageError for a target outside [0, C).
  virtual void cross_entropy(const View& logits, const View& target, const View& log_probs,
                             const View& losses) = 0;
  /// grad_logits[r, c] = (exp(log_probs) - [c == target]) · grad_losses[r]; grad_losses may be broadcast
  /// (stride 0).
  virtual void cross_entropy_backward(const View& log_probs, const View& target, const View& grad_losses,
                                      const View& grad_logits) = 0;

  // ---- optimizers: one call for all parameters
  virtual void sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) = 0;
  virtual void adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) = 0;

  // ---- loss scaling; nothing here is read by the host
  /// Each gradient (floating, dense) becomes gradient · (1 / scale), the inverse taken in double and rounded
  /// to float; `found` [1] f32 becomes 1 when any is not finite, else 0.
  virtual void unscale(std::span<const View> gradients, const View& scale, const View& found) = 0;
  /// After the optimizer: found → scale · backoff, tracker 0, skipped + 1; else after `interval` clean steps
  /// scale · growth (unless that overflows), tracker 0.
  virtual void update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) = 0;
};

}  // namespace dtrain
