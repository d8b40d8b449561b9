#include "runtime/device/timed_kernels.h"

#include "runtime/device/kernel_flops.h"

namespace dtrain {
namespace {

constexpr std::string_view kConv = "conv";
constexpr std::string_view kElementwise = "elementwise";
constexpr std::string_view kLoss = "loss";
constexpr std::string_view kMatmul = "matmul";
constexpr std::string_view kNorm = "norm";
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kPool = "pool";
constexpr std::string_view kReduce = "reduce";

constexpr double kNoFlops = 0;

}  // namespace

template <class Run>
void TimedKernels::timed(std::string_view name, std::string_view kind, double flops, Run run) {
  stream_.synchronize();
  const SpanScope span(&spans_, name, kind, flops);
  run();
  stream_.synchronize();
}

void TimedKernels::fill(const View& out, double value) {
  timed("fill", kElementwise, kNoFlops, [&] { kernels_.fill(out, value); });
}

void TimedKernels::copy(const View& in, const View& out) {
  timed("copy", kElementwise, kNoFlops, [&] { kernels_.copy(in, out); });
}

void TimedKernels::affine(const View& in, double scale, double shift, const View& out) {
  timed("affine", kElementwise, kNoFlops, [&] { kernels_.affine(in, scale, shift, out); });
}

void TimedKernels::unary(UnaryOp op, const View& in, const View& out) {
  timed("unary", kElementwise, kNoFlops, [&] { kernels_.unary(op, in, out); });
}

void TimedKernels::binary(BinaryOp op, const View& a, const View& b, const View& out) {
  timed("binary", kElementwise, kNoFlops, [&] { kernels_.binary(op, a, b, out); });
}

void TimedKernels::where(const View& condition, const View& a, const View& b, const View& out) {
  timed("where", kElementwise, kNoFlops, [&] { kernels_.where(condition, a, b, out); });
}

void TimedKernels::accumulate(const View& in, double scale, const View& out) {
  timed("accumulate", kElementwise, kNoFlops, [&] { kernels_.accumulate(in, scale, out); });
}

void TimedKernels::reduce(Reduction op, const View& in, const View& out) {
  timed("reduce", kReduce, kNoFlops, [&] { kernels_.reduce(op, in, out); });
}

void TimedKernels::argmax(const View& in, const View& out) {
  timed("argmax", kReduce, kNoFlops, [&] { kernels_.argmax(in, out); });
}

void TimedKernels::index_select(const View& in, const View& index, const View& out) {
  timed("index_select", kReduce, kNoFlops, [&] { kernels_.index_select(in, index, out); });
}

void TimedKernels::index_add(const View& in, const View& index, const View& out) {
  timed("index_add", kReduce, kNoFlops, [&] { kernels_.index_add(in, index, out); });
}

void TimedKernels::matmul(const View& a, const View& b, const View& bias, Activation activation,
                          bool accumulate, const View& out) {
  timed("matmul", kMatmul, matmul_flops(a, out),
        [&] { kernels_.matmul(a, b, bias, activation, accumulate, out); });
}

void TimedKernels::conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight,
                          const View& bias, Activation activation, const View& output) {
  timed("conv2d", kConv, conv2d_flops(weight, output),
        [&] { kernels_.conv2d(geometry, input, weight, bias, activation, output); });
}

void TimedKernels::conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output,
                                         const View& weight, const View& grad_input) {
  timed("conv2d_backward_input", kConv, conv2d_flops(weight, grad_output),
        [&] { kernels_.conv2d_backward_input(geometry, grad_output, weight, grad_input); });
}

void TimedKernels::conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input,
                                          const View& grad_output, const View& grad_weight,
                                          const View& grad_bias) {
  timed("conv2d_backward_weight", kConv, conv2d_flops(grad_weight, grad_output),
        [&] { kernels_.conv2d_backward_weight(geometry, input, grad_output, grad_weight, grad_bias); });
}

void TimedKernels::pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
                          const View& indices) {
  timed("pool2d", kPool, kNoFlops, [&] { kernels_.pool2d(geometry, input, output, indices); });
}

void TimedKernels::pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output,
                                   const View& indices, const View& grad_input) {
  timed("pool2d_backward", kPool, kNoFlops,
        [&] { kernels_.pool2d_backward(geometry, grad_output, indices, grad_input); });
}

void TimedKernels::conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                      const View& input, const View& weight, const View& bias,
                                      const View& output, const View& mask) {
  timed("conv2d_relu_pool2d", kConv, conv2d_pool2d_flops(pool, weight, output),
        [&] { kernels_.conv2d_relu_pool2d(conv, pool, input, weight, bias, output, mask); });
}

void TimedKernels::conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                               const View& input, const View& weight, const View& grad_output,
                                               const View& mask, const View& grad_input,
                                               const View& grad_weight, const View& grad_bias) {
  timed("conv2d_relu_pool2d_backward", kConv,
        conv2d_pool2d_backward_flops(pool, weight, grad_output, grad_input.data != nullptr), [&] {
          kernels_.conv2d_relu_pool2d_backward(conv, pool, input, weight, grad_output, mask, grad_input,
                                               grad_weight, grad_bias);
        });
}

void TimedKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                              const View& residual, const View& output) {
  timed("batch_norm", kNorm, kNoFlops, [&] { kernels_.batch_norm(rule, channels, input, residual, output); });
}

void TimedKernels::batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                        const View& input, const View& residual, const View& output) {
  timed("batch_norm_inference", kNorm, kNoFlops,
        [&] { kernels_.batch_norm_inference(rule, channels, input, residual, output); });
}

void TimedKernels::batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                       const View& input, const View& output, const View& grad_output,
                                       const View& grad_input, const View& grad_residual,
                                       const View& grad_weight, const View& grad_bias) {
  timed("batch_norm_backward", kNorm, kNoFlops, [&] {
    kernels_.batch_norm_backward(rule, channels, input, output, grad_output, grad_input, grad_residual,
                                 grad_weight, grad_bias);
  });
}

void TimedKernels::batch_norm_moments(const View& input, const View& moments) {
  timed("batch_norm_moments", kNorm, kNoFlops, [&] { kernels_.batch_norm_moments(input, moments); });
}

void TimedKernels::batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                                      const View& parts) {
  timed("batch_norm_combine", kNorm, kNoFlops, [&] { kernels_.batch_norm_combine(rule, channels, parts); });
}

void TimedKernels::batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels,
                                    const View& input, const View& residual, const View& output) {
  timed("batch_norm_apply", kNorm, kNoFlops,
        [&] { kernels_.batch_norm_apply(rule, channels, input, residual, output); });
}

void TimedKernels::batch_norm_grad_sums(const BatchNormChannels& channels, const View& input,
                                        const View& output, const View& grad_output,
                                        const View& grad_residual, const View& grad_weight,
                                        const View& grad_bias, const View& sums) {
  timed("batch_norm_grad_sums", kNorm, kNoFlops, [&] {
    kernels_.batch_norm_grad_sums(channels, input, output, grad_output, grad_residual, grad_weight, grad_bias,
                                  sums);
  });
}

void TimedKernels::batch_norm_grad_input(const BatchNormChannels& channels, const View& sums,
                                         const View& input, const View& output, const View& grad_output,
                                         const View& grad_input) {
  timed("batch_norm_grad_input", kNorm, kNoFlops,
        [&] { kernels_.batch_norm_grad_input(channels, sums, input, output, grad_output, grad_input); });
}

void TimedKernels::log_softmax(const View& in, const View& out) {
  timed("log_softmax", kLoss, kNoFlops, [&] { kernels_.log_softmax(in, out); });
}

void TimedKernels::cross_entropy(const View& logits, const View& target, const View& log_probs,
                                 const View& losses) {
  timed("cross_entropy", kLoss, kNoFlops, [&] { kernels_.cross_entropy(logits, target, log_probs, losses); });
}

void TimedKernels::cross_entropy_backward(const View& log_probs, const View& target, const View& grad_losses,
                                          const View& grad_logits) {
  timed("cross_entropy_backward", kLoss, kNoFlops,
        [&] { kernels_.cross_entropy_backward(log_probs, target, grad_losses, grad_logits); });
}

void TimedKernels::sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  timed("sgd", kOptimizer, kNoFlops, [&] { kernels_.sgd(slots, step); });
}

void TimedKernels::adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) {
  timed("adamw", kOptimizer, kNoFlops, [&] { kernels_.adamw(slots, step); });
}

void TimedKernels::unscale(std::span<const View> gradients, const View& scale, const View& found) {
  timed("unscale", kOptimizer, kNoFlops, [&] { kernels_.unscale(gradients, scale, found); });
}

void TimedKernels::update_loss_scale(const LossScaleRule& rule, const LossScaleState& state) {
  timed("update_loss_scale", kOptimizer, kNoFlops, [&] { kernels_.update_loss_scale(rule, state); });
}

}  // namespace dtrain
