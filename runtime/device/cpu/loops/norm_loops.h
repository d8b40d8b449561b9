// The inner loops of batch normalisation over channels-last rows: C channels side by side, one row a pixel.
// Compiled once for each vector length, like vector_loops.h.
#pragma once

#include <cstdint>

namespace dtrain::cpu {

/// How activations are stored; arithmetic is in float either way. bf16 is its 16 bits.
enum class RowType { f32, bf16 };

/// Rows of activations; data of other arguments is [channels] unless said otherwise.
struct NormRows {
  std::int64_t rows = 0, channels = 0;
};

struct NormLoops {
  /// sum += Σ (x - shift), squares += Σ (x - shift)² over the rows.
  void (*moments)(RowType type, const NormRows& size, const void* in, const float* shift, float* sum,
                  float* squares);
  /// out = act(in · scale + shift + residual); residual may be null.
  void (*apply)(RowType type, const NormRows& size, bool relu, const void* in, const float* scale,
                const float* shift, const void* residual, void* out);
  /// gated = output <= 0 ? 0 : grad, written where `gated` is given; `output` null: gated = grad.
  /// sum += Σ gated, products += Σ gated · (in - mean).
  void (*grad_sums)(RowType type, const NormRows& size, const void* grad, const void* output, const void* in,
                    const float* mean, void* gated, float* sum, float* products);
  /// to = (gated - grad_mean - (in - mean) · slope) · scale
  void (*grad_input)(RowType type, const NormRows& size, const void* grad, const void* output, const void* in,
                     const float* mean, const float* grad_mean, const float* slope, const float* scale,
                     void* to);
};

}  // namespace dtrain::cpu
