// Inner loops that are worth compiling once for each vector length. The same source (vector_loops_impl.h)
// becomes three tables; which one runs is decided once, by what the processor can do.
#pragma once

#include <cstdint>

#include "runtime/device/cpu/loops/norm_loops.h"

namespace dtrain::cpu {

/// How pooling combines a window, and what it writes to the mask, one byte for each output element.
enum class PoolMode {
  avg,         ///< no mask
  max,         ///< no mask
  max_places,  ///< mask = place of the maximum in the window
  avg_relu,    ///< inputs are at least 0; bit p of mask = element p is positive or NaN
  max_relu,    ///< inputs are at least 0; mask = place of the maximum + 1, or 0 when that is 0
};

/// One output row of a channels-last image; `rows` of the window's kernel_h rows lie inside the input, the
/// first being number first_row.
struct PoolRow {
  std::int64_t channels = 0, in_width = 0, out_width = 0;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t kernel_w = 0, stride_w = 0, pad_w = 0;
  float share = 1;  ///< 1 / window size for averages
};

struct VectorLoops {
  const char* name;
  /// `in` is the first inside row, `out` and `mask` the output row.
  void (*pool)(PoolMode mode, const PoolRow& row, const float* in, float* out, std::uint8_t* mask);
  /// Writes the inside rows of the gradient completely (windows do not overlap), or adds to them.
  void (*pool_backward)(PoolMode mode, bool add, const PoolRow& row, const float* grad,
                        const std::uint8_t* mask, float* to);
  NormLoops norm;
};

/// The best table this processor runs.
const VectorLoops& vector_loops() noexcept;

namespace baseline {
extern const VectorLoops kLoops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const VectorLoops kLoops;
}
namespace avx512 {
extern const VectorLoops kLoops;
}
#endif

}  // namespace dtrain::cpu
