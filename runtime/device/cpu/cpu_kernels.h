// The CPU's table of kernels. f64 and anything without a fast version runs in plain loops (naive.h), products
// and convolutions of bf16 and f16 without one in f32.
#pragma once

#include <array>
#include <memory>

#include "runtime/device/cpu/convolution/lane_conv.h"
#include "runtime/device/cpu/convolution/winograd.h"
#include "runtime/device/cpu/dense/dense_math.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/cpu/workers/workers.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

class CpuKernels final : public Kernels {
 public:
  CpuKernels();
  ~CpuKernels() override;

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters override;
#include "runtime/device/kernels.def"

 private:
  /// The images that lane_conv.h takes, whatever the layout of the gradients.
  void lanes_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                      const View& mask, const View& grad_input, const View& grad_weight,
                      const View& grad_bias);

  /// conv2d_backward_weight with its arguments checked and a dense grad_bias.
  void weight_gradients(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                        const View& grad_weight, const View& grad_bias);

  /// The library's product, from copies of what it cannot read; false where it has none.
  bool fast_matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out);

  /// Winograd's algorithm or the library, without activation; false where neither can.
  bool fast_conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
                   const View& output);

  std::unique_ptr<DenseMath> math_;
  WinogradScratch winograd_scratch_;
  Scratch fused_scratch_;
  WorkerScratch attention_scratch_;
  Scratch attention_gradients_;  ///< of queries, until all stripes of keys have added theirs
  LaneScratch lane_scratch_;
  std::array<Scratch, 4> widened_;   ///< arrays of halves, where there is no library for their products
  Scratch staging_, input_staging_;  ///< for callers' arrays that are not channels-last
};

}  // namespace dtrain::cpu
