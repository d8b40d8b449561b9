// cuDNN's opaque structs.
#pragma once

#include <cudnn.h>

#include "emulation/math/convolution.h"

namespace emulation {
/// False for types that there are no arrays of here.
bool element_of(cudnnDataType_t type, Element& element);
}  // namespace emulation

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  emulation::Image image;
};
struct cudnnFilterStruct {
  emulation::Image image;
};
struct cudnnConvolutionStruct {
  int pad[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1}, groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
};
