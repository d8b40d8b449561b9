// The table of kernels a device provides, and the types its operations take. The operations themselves are
// listed, with what each does and the rules for all of them, in kernels.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/device/view.h"

namespace dtrain {

enum class UnaryOp {
#define DTRAIN_UNARY(name, Functor) name,
#include "runtime/device/kernels.def"
};
enum class BinaryOp {
#define DTRAIN_BINARY(name, Functor) name,
#include "runtime/device/kernels.def"
};
enum class ParametricOp {
#define DTRAIN_PARAMETRIC(name, formula) name,
#include "runtime/device/kernels.def"
};
enum class Reduction { sum, mean, max, min };
enum class PoolKind { max, avg };
enum class Activation { none, relu };

/// The target whose rows a cross-entropy leaves out, if any. No int64 is free to say "none": labels are data.
using IgnoredTarget = std::optional<std::int64_t>;

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
  return pool.pad_h == 0 && pool.pad_w == 0 && pool.kernel_h >= 1 && pool.kernel_w >= 1 &&
         pool.kernel_h <= 8 && pool.kernel_w <= 8 && pool.stride_h >= pool.kernel_h &&
         pool.stride_w >= pool.kernel_w && pool.kernel_h * pool.kernel_w <= 8;
}

/// torch.nn.BatchNorm2d's rule over [N, C, H, W]: each channel is normalised by its own mean and biased
/// variance; running = (1 - momentum) · running + momentum · batch, with the unbiased variance.
struct BatchNormRule {
  double eps = 1e-5;
  double momentum = 0.1;
  Activation activation = Activation::none;
};

/// The per-channel arrays of a batch normalisation, each [C] with any stride: f32, or f64 where the
/// activations are.
struct BatchNormChannels {
  View weight, bias;  ///< backward: a bias only where forward added no residual; the gate follows from it
  View running_mean, running_var;  ///< training: updated, null data when there are none
  View mean, inv_std;              ///< of this batch: training forward writes, backward reads
};

/// torch.nn.LayerNorm's rule over the rows of a matrix: centered, by the row's mean and biased variance; not
/// centered (RMSNorm), by the mean of its squares.
struct RowNormRule {
  double eps = 1e-5;
  bool centered = true;
};

/// What decides each element of a dropout mask, besides its place in its row: read when the kernel runs.
struct MaskNumbers {
  std::uint64_t seed = 0, layer = 0;
  View step;  ///< i64 [1]
  View rows;  ///< i64 [N]: who the rows are; null data: 0, 1, … The mask has N · k rows along its first
              ///< dimension
  std::int64_t first = 0;  ///< place in its row of the first element here: above 0 if rows began elsewhere
};

/// softmax(query · keyᵀ · scale) · value, head by head. Queries [B, G, R, L, E], keys [B, G, S, E], values
/// [B, G, S, F]: R heads of queries share one of keys and values.
struct AttentionRule {
  double scale = 1;
  /// Query i, which stands at place first_query + i among the keys, sees none behind its own.
  bool causal = false;
  std::int64_t first_query = 0;
};

/// What else decides which keys a query sees. Null data: all of them. A query that sees no key gives 0.
struct AttentionMasks {
  View bias;  ///< [B, G, R, L, S], any strides, f32 (f64 for f64): added to the scaled scores. Where it is -∞
              ///< for all keys the result is NaN
  View lengths;   ///< i64 [B]: keys that a batch entry has, from the first one on
  View segments;  ///< i32 [B, S], dense: a query sees the keys that have the number at its own place
  /// Dropout of the weights: each is kept with this probability, and multiplied by its inverse. The mask is
  /// what dropout_mask gives for `numbers` and [B, G, R, L, S rounded up to a multiple of 4].
  double keep_share = 1;
  MaskNumbers numbers = {};
};

/// Elements of a head, in queries, keys and values, that kernels take.
inline constexpr std::int64_t kMostAttentionWidth = 128;

/// One parameter of a fused optimizer step; views are dense, of one shape. State views may have null data
/// when unused.
struct OptimizerSlot {
  View param;      ///< updated in place
  View grad;       ///< read only
  View momentum;   ///< SGD and RMSprop: buf; AdamW: m
  View variance;   ///< AdamW: v; RMSprop: running mean of the square; Adagrad: sum of the squares
  View mean = {};  ///< RMSprop, centered: running mean of the gradient
};

/// Whether a step happens, as the device alone may know: null data means always. A skipped step leaves
/// everything as it is.
struct StepGate {
  View skip;     ///< f32 [1]: the step is skipped when this is not 0
  View skipped;  ///< i64 [1]: steps skipped before this one; null data: none
};

/// Dynamic loss scaling: torch's GradScaler rule.
struct LossScaleRule {
  double growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  ///< clean steps in a row before the scale grows
  double least = 0;              ///< where it stops to fall
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

/// torch.optim.AdamW's rule, or Adam's where weight decay is not `decoupled` but added to the gradient;
/// `step` counts from 1, steps skipped by the gate included.
struct AdamWStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  std::int64_t step = 1;
  StepGate gate = {};
  StepChanges changes = {};
  bool decoupled = true;
};

/// torch.optim.RMSprop's rule.
struct RmsPropStep {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  StepGate gate = {};
  StepChanges changes = {};
};

/// torch.optim.Adagrad's rule; `step` counts as AdamW's does.
struct AdagradStep {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, eps = 1e-10;
  std::int64_t step = 1;
  StepGate gate = {};
  StepChanges changes = {};
};

/// Lion's rule (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023), weight decay decoupled.
struct LionStep {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  StepGate gate = {};
  StepChanges changes = {};
};

/// torch._foreach_lerp_'s rule, for averages of weights.
struct LerpStep {
  double weight = 0;
  StepGate gate = {};
  StepChanges changes = {};
};

/// One virtual function an operation; kernels.def says what each does, with shapes and dtypes.
class Kernels {
 public:
  virtual ~Kernels() = default;

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) virtual void name parameters = 0;
#include "runtime/device/kernels.def"
};

}  // namespace dtrain
