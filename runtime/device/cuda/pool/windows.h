// Kernels of our own over windows of images: direct convolution (for what cuDNN does not take, and builds
// without it) and the fused bias, relu and pooling. Any strides; sums in double.
#pragma once

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

void direct_conv2d(const Context& context, const Conv2dGeometry& geometry, const View& input,
                   const View& weight, const View& bias, Activation activation, const View& output);
void direct_conv2d_backward_input(const Context& context, const Conv2dGeometry& geometry,
                                  const View& grad_output, const View& weight, const View& grad_input);
void direct_conv2d_backward_weight(const Context& context, const Conv2dGeometry& geometry, const View& input,
                                   const View& grad_output, const View& grad_weight);

/// output = pool(relu(input + bias)); bias and mask may have null data.
void relu_pool(const Context& context, const Pool2dGeometry& pool, const View& input, const View& bias,
               const View& output, const View& mask);
/// The gradient of relu_pool's input, written completely.
void relu_pool_backward(const Context& context, const Pool2dGeometry& pool, const View& grad_output,
                        const View& mask, const View& grad_input);

}  // namespace dtrain::cuda
