// Convolutions of images as matrix products: patches of the input become rows.
#pragma once

#include <cstdint>

#include "emulation/math/element.h"

namespace emulation {

/// An array of rank 4 in any order.
struct Image {
  Element type = Element::f32;
  std::int64_t extent[4] = {};  ///< N, C, H, W; of a filter: outputs, C / groups, height, width
  std::int64_t step[4] = {};
  std::int64_t count() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
};

struct Convolution {
  Image input, filter, output;
  int pad[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1}, groups = 1;
  bool tf32 = false;  ///< inputs are rounded to what tensor cores keep of floats
};

/// y = alpha · x * w + beta · y + bias (null: none), and relu. Sums in float.
void convolve(const Convolution& c, float alpha, const void* x, const void* w, float beta, void* y,
              const void* bias, bool relu);
/// dx = alpha · (gradient of x) + beta · dx
void convolve_back_to_input(const Convolution& c, float alpha, const void* w, const void* dy, float beta,
                            void* dx);
/// dw = alpha · (gradient of w) + beta · dw
void convolve_back_to_filter(const Convolution& c, float alpha, const void* x, const void* dy, float beta,
                             void* dw);

}  // namespace emulation
