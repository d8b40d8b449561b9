// The CPU's table of kernels. f64 and anything without a fast version runs in plain loops (naive.h).
#pragma once

#include <memory>

#include "runtime/device/cpu/dense/dense_math.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

class CpuKernels final : public Kernels {
 public:
  CpuKernels();
  ~CpuKernels() override;

  void fill(const View& out, double value) override;
  void copy(const View& in, const View& out) override;
  void affine(const View& in, double scale, double shift, const View& out) override;
  void unary(UnaryOp op, const View& in, const View& out) override;
  void binary(BinaryOp op, const View& a, const View& b, const View& out) override;
  void where(const View& condition, const View& a, const View& b, const View& out) override;
  void accumulate(const View& in, double scale, const View& out) override;

  void reduce(Reduction op, const View& in, const View& out) override;
  void argmax(const View& in, const View& out) override;
  void index_select(const View& in, const View& index, const View& out) override;
  void index_add(const View& in, const View& index, const View& out) override;

  void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
              const View& out) override;

  void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
              Activation activation, const View& output) override;
  void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                             const View& grad_input) override;
  void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                              const View& grad_weight, const View& grad_bias) override;
  void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
              const View& indices) override;
  void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                       const View& grad_input) override;
  void conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                          const View& weight, const View& bias, const View& output,
                          const View& mask) override;
  void conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool, const View& input,
                                   const View& weight, const View& grad_output, const View& mask,
                                   const View& grad_input, const View& grad_weight,
                                   const View& grad_bias) override;

  void batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                  const View& residual, const View& output) override;
  void batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                            const View& residual, const View& output) override;
  void batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                           const View& output, const View& grad_output, const View& grad_input,
                           const View& grad_residual, const View& grad_weight,
                           const View& grad_bias) override;
  void batch_norm_moments(const View& input, const View& moments) override;
  void batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                          const View& parts) override;
  void batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                        const View& residual, const View& output) override;
  void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                            const View& grad_output, const View& grad_residual, const View& grad_weight,
                            const View& grad_bias, const View& sums) override;
  void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                             const View& output, const View& grad_output, const View& grad_input) override;

  void log_softmax(const View& in, const View& out) override;
  void cross_entropy(const View& logits, const View& target, const View& log_probs,
                     const View& losses) override;
  void cross_entropy_backward(const View& log_probs, const View& target, const View& grad_losses,
                              const View& grad_logits) override;

  void sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) override;
  void adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) override;
  void unscale(std::span<const View> gradients, const View& scale, const View& found) override;
  void update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) override;

 private:
  /// The images that lane_conv.h takes, whatever the layout of the gradients.
  void lanes_backward(const View& input, const View& weight, PoolKind kind, const View& grad_output,
                      const View& mask, const View& grad_input, const View& grad_weight,
                      const View& grad_bias);

  /// Winograd's algorithm (bf16) or the library, without activation; false where neither can.
  bool fast_conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
                   const View& output);

  std::unique_ptr<DenseMath> math_;
  Scratch winograd_scratch_;
  Scratch fused_scratch_;
  Scratch staging_, input_staging_;  ///< for callers' arrays that are not channels-last
};

}  // namespace dtrain::cpu
