// The CUDA device's table of kernels. Everything is queued on the compute stream and nothing waits for it;
// the same call on the same shapes always runs the same deterministic algorithm.
#pragma once

#include <memory>

#include "runtime/device/cuda/context.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {

class Convolutions;
class MatmulPlans;
class SlotTables;

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const Context& context);
  ~CudaKernels() override;

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters override;
#include "runtime/device/kernels.def"

 private:
  /// out = act(out + bias along `dim`); null bias: activation alone.
  void add_bias(const View& out, int dim, const View& bias, Activation activation);
  /// The sum of a gradient [N, C, H, W] over all but C.
  void channel_sums(const View& grad, const View& out);
  /// conv2d without activation that also gives each channel's sum of the output and of its squares, [O] each.
  /// False, with nothing written, where nothing does that.

  Context context_;
  std::unique_ptr<MatmulPlans> matmuls_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<SlotTables> slot_tables_;
};

}  // namespace dtrain::cuda
