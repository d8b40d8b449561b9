// 3 x 3 convolution (stride 1, padding 1) of channels-last activations by Winograd's algorithm: F(2 x 2, 3 x
// 3), 16 products where the definition has 36, and for gradients in f32 F(4 x 4, 3 x 3), 36 where it has 144.
// After Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. The same bits for any
// number of threads. Which convolutions take it: decision 014; what that does to the digits: decision 070.
#pragma once

#include "runtime/device/cpu/workers/workers.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

/// Whether the functions below can do this convolution on this processor: f32 activations, or bf16 with
/// AVX-512's dot products, channels in multiples of 32, images of at least 4 x 4. It does not depend on the
/// number of images.
bool winograd_can(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& output);

/// What all workers read, and each worker's own.
struct WinogradScratch {
  Scratch shared;
  WorkerScratch own;
};

/// Arguments are those of Kernels, of which winograd_can() holds. bias is float32 [O] or null.
void winograd_forward(const View& input, const View& weight, const View& bias, const View& output,
                      WinogradScratch& scratch);
void winograd_backward_input(const View& grad_output, const View& weight, const View& grad_input,
                             WinogradScratch& scratch);
/// grad_weight and grad_bias are dense float32; grad_bias may be null.
void winograd_backward_weight(const View& input, const View& grad_output, const View& grad_weight,
                              const View& grad_bias, WinogradScratch& scratch);

}  // namespace dtrain::cpu
