#include "runtime/device/cuda/convolution/cudnn_plan.h"

#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDNN_DATA_FLOAT;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f16:
      return CUDNN_DATA_HALF;
    default:
      refuse_dtype("conv2d", dtype);
  }
}

namespace {

UniqueTensor make_tensor(cudnnDataType_t type, const std::int64_t (&extent)[4]) {
  cudnnTensorDescriptor_t tensor = nullptr;
  check(cudnnCreateTensorDescriptor(&tensor), "describe an image");
  UniqueTensor owned(tensor);
  check(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NHWC, type, static_cast<int>(extent[0]),
                                   static_cast<int>(extent[1]), static_cast<int>(extent[2]),
                                   static_cast<int>(extent[3])),
        "describe an image");
  return owned;
}

UniqueFilter make_filter(cudnnDataType_t type, const std::int64_t (&extent)[4]) {
  cudnnFilterDescriptor_t filter = nullptr;
  check(cudnnCreateFilterDescriptor(&filter), "describe a filter");
  UniqueFilter owned(filter);
  check(cudnnSetFilter4dDescriptor(filter, type, CUDNN_TENSOR_NHWC, static_cast<int>(extent[0]),
                                   static_cast<int>(extent[1]), static_cast<int>(extent[2]),
                                   static_cast<int>(extent[3])),
        "describe a filter");
  return owned;
}

}  // namespace

ConvPlan describe_convolution(const ConvKey& key, bool tensor_cores) {
  const cudnnDataType_t type = data_type(key.dtype);
  ConvPlan plan;
  plan.input = make_tensor(type, key.input);
  plan.output = make_tensor(type, key.output);
  plan.bias = make_tensor(type, {1, key.weight[0], 1, 1});
  plan.weight = make_filter(type, key.weight);
  cudnnConvolutionDescriptor_t convolution = nullptr;
  check(cudnnCreateConvolutionDescriptor(&convolution), "describe a convolution");
  plan.convolution.reset(convolution);
  const Conv2dGeometry& g = key.geometry;
  check(cudnnSetConvolution2dDescriptor(convolution, static_cast<int>(g.pad_h), static_cast<int>(g.pad_w),
                                        static_cast<int>(g.stride_h), static_cast<int>(g.stride_w),
                                        static_cast<int>(g.dilation_h), static_cast<int>(g.dilation_w),
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "describe a convolution");
  check(cudnnSetConvolutionGroupCount(convolution, static_cast<int>(g.groups)), "describe a convolution");
  // For f32 the default is what permits TF32; TENSOR_OP speaks of inputs that are narrow already.
  const cudnnMathType_t reduced = key.dtype == DType::f32 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH;
  check(cudnnSetConvolutionMathType(convolution, tensor_cores ? reduced : CUDNN_FMA_MATH),
        "describe a convolution");
  return plan;
}

bool supported(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  const int category = CUDNN_STATUS_CATEGORY(static_cast<int>(status));
  if (category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM) return false;
  check(status, what);
  return false;
}

}  // namespace dtrain::cuda
