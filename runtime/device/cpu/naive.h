// The dense operations in plain loops, one output element at a time, summed in double: the f64 path, the
// fallback where oneDNN cannot help, and the reference of the tests. Arguments are those of Kernels.
#pragma once

#include "runtime/device/kernels.h"

namespace dtrain::cpu::naive {

void matmul(const View& a, const View& b, const View& bias, Activation activation, bool accumulate,
            const View& out);
void integer_matmul(const View& a, const View& b, bool accumulate, const View& out);

void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
            Activation activation, const View& output);
void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                           const View& grad_input);
void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                            const View& grad_weight, const View& grad_bias);

void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output, const View& indices);
void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                     const View& grad_input);

/// Pooling of an array that is at least 0, with the mask of conv2d_relu_pool2d as PoolMode describes it.
void relu_pool(const Pool2dGeometry& geometry, const View& input, const View& output, const View& mask);
void relu_pool_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& mask,
                        const View& grad_input);

void batch_norm_moments(const View& input, const View& moments);
void batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels, const View& parts);
void batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                      const View& residual, const View& output);
void batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                          const View& residual, const View& output);
void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                          const View& grad_output, const View& grad_residual, const View& sums);
/// Gradients of weight and bias from the sums of this part; null data where not wanted.
void batch_norm_channel_grads(const BatchNormChannels& channels, const View& sums, const View& grad_weight,
                              const View& grad_bias);
void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                           const View& output, const View& grad_output, const View& grad_input);

}  // namespace dtrain::cpu::naive
