// A library for the heavy operations. One of onednn_math.cc and no_onednn_math.cc is compiled.
#pragma once

#include <memory>
#include <string>

#include "runtime/device/kernels.h"

namespace dtrain::cpu {

/// Fast versions of what naive.h does. Arguments are those of Kernels, already checked and not empty. Each
/// returns false, having written nothing, where it has no fast version. Throws DeviceError when the library
/// fails. Not thread-safe. There are no activations here: oneDNN's relu turns NaN into 0, which would hide a
/// diverged run.
class DenseMath {
 public:
  virtual ~DenseMath() = default;

  /// The strides are nested: each but 0 steps over all that lies inside it.
  virtual bool matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out) = 0;
  virtual bool conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
                      const View& output) = 0;
  virtual bool conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output,
                                     const View& weight, const View& grad_input) = 0;
  virtual bool conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input,
                                      const View& grad_output, const View& grad_weight,
                                      const View& grad_bias) = 0;
};

/// Cheap: the library generates its code on first use of each shape.
std::unique_ptr<DenseMath> make_dense_math();

/// "oneDNN 2.6.3, avx512_core_bf16", or "plain loops" without a library.
std::string dense_math_name();

}  // namespace dtrain::cpu
