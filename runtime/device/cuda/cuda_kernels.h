// The CUDA device's table of kernels. Everything is queued on the compute stream and nothing waits for it;
// the same call on the same shapes always runs the same deterministic algorithm.
#pragma once

#include <memory>

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

class Convolutions;
class MatmulPlans;
class SlotTables;

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const Context& context);
  ~CudaKernels() override;

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

  void unscale(std::span<const View> gradients, const View& scale, const View& found) override;
  void update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) override;

  void log_softmax(const View& in, const View& out) override;
  void cross_entropy(const View& logits, const View& target, const View& log_probs,
                     const View& losses) override;
  void cross_entropy_backward(const View& log_probs, const View& target, const View& grad_losses,
                              const View& grad_logits) override;

  void sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) override;
  void adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) override;

 private:
  /// out = act(out + bias along `dim`); null bias: activation alone.
  void add_bias(const View& out, int dim, const View& bias, Activation activation);
  /// The sum of a gradient [N, C, H, W] over all but C.
  void channel_sums(const View& grad, const View& out);

  Context context_;
  std::unique_ptr<MatmulPlans> matmuls_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<SlotTables> slot_tables_;
};

}  // namespace dtrain::cuda
