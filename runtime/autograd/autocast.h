// Mixed precision by operation list. While an Autocast is alive, in its thread, convolutions and matrix
// products take their operands in the low precision, and what needs range or exact sums (losses, softmax,
// pooling averages, the statistics of batch norm, the optimizer) stays in float32. Parameters are float32
// throughout and get float32 gradients.
//
//   low precision   conv2d and what is made of it, conv_transpose2d, linear, matmul
//   as they come    batch_norm (statistics in float32), relu and other element-wise operations, max pooling;
//                   of float32 and low-precision operands (cat, where and a residual among them): in float32
//   float32         cross_entropy, log_softmax, adaptive and average pooling, conv2d_relu_pool2d (whose
//                   kernel is faster in float32 than the general ones in bf16)
//
// The low precision of fp16 is float16 on GPUs; CPUs emulate it in float32.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "runtime/tensor/tensor.h"

namespace dtrain {

enum class Precision {
  fp32,
  tf32,  ///< fp32 whose matrix products the device rounds (DeviceOptions::tf32)
  bf16,
  /// On GPUs float16 operands, sums in float32. On the CPU emulated: float32 arithmetic on values rounded to
  /// float16, forward and backward, so that overflow and underflow are those of float16.
  fp16,
};

/// "fp32", "tf32", "bf16" or "fp16"
std::string_view name_of(Precision precision) noexcept;
/// Throws UsageError for what is not such a name.
Precision precision_named(std::string_view name);

/// Low-precision copies of parameters, each made once for each value the parameter has. Thread-safe.
class LowPrecisionWeights {
 public:
  /// `weight` in `dtype`, without history.
  Tensor get(const Tensor& weight, DType dtype);
  /// Converts all of them again when they are next used: a step that is recorded must convert its weights
  /// itself, or its replays would use those of the recording.
  void clear();

 private:
  struct Copy {
    std::uint64_t version = 0;
    Tensor source;  ///< keeps the address from being given to another parameter
    Tensor value;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Copy> copies_;
};

/// A thread's precision at one moment, to compute something again as it was computed then. Borrows what the
/// Autocast of that moment borrowed.
struct AutocastState {
  Precision precision = Precision::fp32;
  LowPrecisionWeights* weights = nullptr;

  static AutocastState now() noexcept;
};

/// Sets this thread's precision for as long as it lives; nests like GradMode. `weights` is borrowed.
class Autocast {
 public:
  Autocast(Precision precision, LowPrecisionWeights& weights) noexcept
      : Autocast(AutocastState{precision, &weights}) {}
  explicit Autocast(const AutocastState& state) noexcept;
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  AutocastState before_;
};

// ---- for the operations

/// True while float32 operands are to be taken in another precision.
bool autocast_enabled() noexcept;
/// A float32 activation as the operations of the low-precision list take it; recorded. Others as they are.
Tensor autocast_low(const Tensor& x);
/// A low-precision activation in float32, while autocast is on; recorded. Others as they are.
Tensor autocast_full(const Tensor& x);
/// True while autocast is on and one operand is float32, the other in the low precision.
bool autocast_mixes(const Tensor& a, const Tensor& b) noexcept;
/// The weight a kernel reads beside activation `x`, which autocast_low() gave: in x's dtype, without history
/// where that differs from `weight`'s.
Tensor autocast_weight(const Tensor& weight, const Tensor& x);
/// A weight, bias or result rounded to float16 where that is being emulated; recorded.
Tensor autocast_rounded(const Tensor& x);

}  // namespace dtrain
