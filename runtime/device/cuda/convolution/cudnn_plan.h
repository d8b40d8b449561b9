// One convolution as cuDNN knows it: descriptors, algorithm, workspace size.
#pragma once

#include <cudnn.h>

#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/convolution/convolutions.h"

namespace dtrain::cuda {

using UniqueDnn = Unique<PointerTraits<cudnnHandle_t, cudnnDestroy>>;
using UniqueTensor = Unique<PointerTraits<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>>;
using UniqueFilter = Unique<PointerTraits<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>>;
using UniqueConvolution =
    Unique<PointerTraits<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>>;
using UniqueActivation = Unique<PointerTraits<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>>;

/// A plan whose algorithm is not chosen yet has `usable` false.
struct ConvPlan {
  UniqueTensor input, output, bias;
  UniqueFilter weight;
  UniqueConvolution convolution;
  int algorithm = 0;  ///< of the enumeration of the key's pass
  std::size_t workspace_bytes = 0;
  bool usable = false;
  bool untried = false;    ///< trying was asked for, and refused
  bool can_finish = true;  ///< cuDNN takes bias and activation into this convolution; until it says no
};

/// Throws UsageError for types that cuDNN does not convolve here.
cudnnDataType_t data_type(DType dtype);

/// Descriptors for `key`. `tensor_cores`: reduced-precision inputs (bf16, f16, or f32 as TF32) may use them.
ConvPlan describe_convolution(const ConvKey& key, bool tensor_cores);

/// True when the call succeeded; false when cuDNN does not do that; throws DeviceError for a real failure.
bool supported(cudnnStatus_t status, const char* what);

}  // namespace dtrain::cuda
