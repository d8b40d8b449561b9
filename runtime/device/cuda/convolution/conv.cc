// Convolutions as the seam has them: brings arrays into cuDNN's channels-last order where they are not, and
// falls back to the direct kernels.
#include <optional>

#include "runtime/device/cuda/convolution/convolutions.h"
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/in_dtype.h"
#include "runtime/device/cuda/matmul/matmul.h"
#include "runtime/device/cuda/memory/slot_tables.h"
#include "runtime/device/cuda/notices.h"
#include "runtime/device/cuda/pool/windows.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {
namespace {

/// cuDNN's extents are ints, and float64 has the direct kernels.
bool fits_cudnn(const View& input, const View& output) {
  return (input.dtype == DType::f32 || is_half(input.dtype)) && input.numel() <= INT32_MAX &&
         output.numel() <= INT32_MAX && input.numel() > 0;
}

/// What is too large for cuDNN is said; float64, which it could do, is for tests.
void note_direct(const char* pass, const View& input) {
  if (input.dtype == DType::f64) return;
  if (input.numel() <= INT32_MAX) return;  // cuDNN's own refusal, said there
  give_notice(std::string("cuDNN takes no arrays of more than 2147483647 elements: conv2d ") + pass +
              ", input " + input.shape.to_string() + ", is done by a direct kernel, many times slower");
}

/// An array in channels-last order: the one given, or memory of its own that is filled from it (inputs) or
/// written back to it (outputs, finish()).
class ChannelsLast {
 public:
  ChannelsLast(Kernels& kernels, Memory& memory, const View& view, bool is_input)
      : kernels_(kernels), given_(view), dense_(view) {
    if (view.is_channels_last()) return;
    memory_.emplace(memory, static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
    dense_ = {memory_->data(), view.dtype, view.shape, channels_last_strides(view.shape)};
    if (is_input) kernels.copy(view, dense_);
  }
  const View& view() const noexcept { return dense_; }
  void finish() {
    if (memory_) kernels_.copy(dense_, given_);
  }

 private:
  Kernels& kernels_;
  View given_, dense_;
  std::optional<Scratch> memory_;
};

}  // namespace

CudaKernels::CudaKernels(const Context& context)
    : context_(context),
      matmuls_(std::make_unique<MatmulPlans>(context)),
      convolutions_(std::make_unique<Convolutions>(context)),
      slot_tables_(std::make_unique<SlotTables>(context)) {}
CudaKernels::~CudaKernels() = default;

void CudaKernels::conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight,
                         const View& given_bias, Activation activation, const View& output) {
  const InDtype own_bias(*this, context_.memory, given_bias, input.dtype, true);
  const View& bias = own_bias.view();
  if (output.numel() == 0) return;
  if (fits_cudnn(input, output)) {
    const ChannelsLast x(*this, context_.memory, input, true), w(*this, context_.memory, weight, true);
    ChannelsLast y(*this, context_.memory, output, false);
    const ConvKey key = make_conv_key(ConvPass::forward, geometry, input, weight, output);
    bool finished = false;
    if (convolutions_->forward(key, x.view(), w.view(), bias, activation, y.view(), finished)) {
      if (!finished && (bias.data != nullptr || activation != Activation::none))
        add_bias(y.view(), 1, bias, activation);
      return y.finish();
    }
  }
  note_direct("forward", input);
  direct_conv2d(context_, geometry, input, weight, bias, activation, output);
}

void CudaKernels::conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output,
                                        const View& weight, const View& grad_input) {
  if (grad_input.numel() == 0) return;
  if (fits_cudnn(grad_input, grad_output) && grad_output.numel() > 0) {
    const ChannelsLast y(*this, context_.memory, grad_output, true), w(*this, context_.memory, weight, true);
    ChannelsLast x(*this, context_.memory, grad_input, false);
    const ConvKey key = make_conv_key(ConvPass::backward_input, geometry, grad_input, weight, grad_output);
    if (convolutions_->backward_input(key, y.view(), w.view(), x.view())) return x.finish();
  }
  note_direct("back to the input", grad_input);
  direct_conv2d_backward_input(context_, geometry, grad_output, weight, grad_input);
}

void CudaKernels::conv2d_backward_input_add(const Conv2dGeometry& geometry, const View& grad_output,
                                            const View& weight, const View& grad_input) {
  if (grad_input.numel() == 0 || grad_output.numel() == 0) return;
  if (fits_cudnn(grad_input, grad_output) && grad_input.is_channels_last()) {
    const ChannelsLast y(*this, context_.memory, grad_output, true), w(*this, context_.memory, weight, true);
    const ConvKey key = make_conv_key(ConvPass::backward_input, geometry, grad_input, weight, grad_output);
    if (convolutions_->add_backward_input(key, y.view(), w.view(), grad_input)) return;
  }
  const Scratch memory(context_.memory,
                       static_cast<std::size_t>(grad_input.numel()) * size_of(grad_input.dtype));
  View apart = grad_input;
  apart.data = memory.data();
  conv2d_backward_input(geometry, grad_output, weight, apart);
  accumulate(apart, 1.0, grad_input);
}

void CudaKernels::conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input,
                                         const View& grad_output, const View& grad_weight,
                                         const View& grad_bias) {
  if (grad_weight.dtype != input.dtype || (grad_bias.data != nullptr && grad_bias.dtype != input.dtype)) {
    InDtype weight(*this, context_.memory, grad_weight, input.dtype, false);
    InDtype bias(*this, context_.memory, grad_bias, input.dtype, false);
    conv2d_backward_weight(geometry, input, grad_output, weight.view(), bias.view());
    weight.finish();
    return bias.finish();
  }
  if (grad_bias.data != nullptr) channel_sums(grad_output, grad_bias);
  if (grad_weight.numel() == 0) return;
  if (fits_cudnn(input, grad_output) && grad_output.numel() > 0) {
    const ChannelsLast x(*this, context_.memory, input, true), y(*this, context_.memory, grad_output, true);
    ChannelsLast w(*this, context_.memory, grad_weight, false);
    const ConvKey key = make_conv_key(ConvPass::backward_weight, geometry, input, grad_weight, grad_output);
    if (convolutions_->backward_weight(key, x.view(), y.view(), w.view())) return w.finish();
  }
  note_direct("back to the weight", input);
  direct_conv2d_backward_weight(context_, geometry, input, grad_output, grad_weight);
}

void CudaKernels::channel_sums(const View& grad, const View& out) {
  View column = out;
  column.shape = {1, grad.shape[1], 1, 1};
  column.strides = {0, out.strides[0], 0, 0};
  reduce(Reduction::sum, grad, column);
}

void CudaKernels::conv2d_relu_pool2d(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                     const View& input, const View& weight, const View& given_bias,
                                     const View& output, const View& mask) {
  const InDtype own_bias(*this, context_.memory, given_bias, input.dtype, true);
  const View& bias = own_bias.view();
  const Dims shape = {
      input.shape[0], weight.shape[0],
      window_outputs(input.shape[2], weight.shape[2], conv.stride_h, conv.pad_h, conv.dilation_h),
      window_outputs(input.shape[3], weight.shape[3], conv.stride_w, conv.pad_w, conv.dilation_w)};
  if (output.numel() == 0) return;
  const Scratch memory(context_.memory, static_cast<std::size_t>(shape.product()) * size_of(input.dtype));
  const View between{memory.data(), input.dtype, shape, channels_last_strides(shape)};
  conv2d(conv, input, weight, View{}, Activation::none, between);
  relu_pool(context_, pool, between, bias, output, mask);
}

void CudaKernels::conv2d_relu_pool2d_backward(const Conv2dGeometry& conv, const Pool2dGeometry& pool,
                                              const View& input, const View& weight, const View& grad_output,
                                              const View& mask, const View& grad_input,
                                              const View& grad_weight, const View& grad_bias) {
  const Dims shape = {
      input.shape[0], weight.shape[0],
      window_outputs(input.shape[2], weight.shape[2], conv.stride_h, conv.pad_h, conv.dilation_h),
      window_outputs(input.shape[3], weight.shape[3], conv.stride_w, conv.pad_w, conv.dilation_w)};
  const Scratch memory(context_.memory, static_cast<std::size_t>(shape.product()) * size_of(input.dtype));
  const View between{memory.data(), input.dtype, shape, channels_last_strides(shape)};
  if (between.numel() > 0) relu_pool_backward(context_, pool, grad_output, mask, between);
  conv2d_backward_weight(conv, input, between, grad_weight, grad_bias);
  if (grad_input.data != nullptr) conv2d_backward_input(conv, between, weight, grad_input);
}

}  // namespace dtrain::cuda
