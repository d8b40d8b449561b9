// cuDNN's handles and descriptors.
#include "emulation/cudnn/handles.h"

#include "emulation/cudart/enter.h"

namespace emulation {

bool element_of(cudnnDataType_t type, Element& element) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      element = Element::f32;
      return true;
    case CUDNN_DATA_DOUBLE:
      element = Element::f64;
      return true;
    case CUDNN_DATA_BFLOAT16:
      element = Element::bf16;
      return true;
    case CUDNN_DATA_HALF:
      element = Element::f16;
      return true;
    default:
      return false;
  }
}

namespace {

cudnnStatus_t describe(Image& image, cudnnTensorFormat_t format, cudnnDataType_t type,
                       const int (&extent)[4]) {
  if (!element_of(type, image.type)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (format != CUDNN_TENSOR_NHWC && format != CUDNN_TENSOR_NCHW) return CUDNN_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < 4; ++i) {
    if (extent[i] < 1) return CUDNN_STATUS_BAD_PARAM;
    image.extent[i] = extent[i];
  }
  const auto& e = image.extent;
  if (format == CUDNN_TENSOR_NHWC) {
    image.step[1] = 1;
    image.step[3] = e[1];
    image.step[2] = e[3] * e[1];
  } else {
    image.step[3] = 1;
    image.step[2] = e[3];
    image.step[1] = e[2] * e[3];
  }
  image.step[0] = e[1] * e[2] * e[3];
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulation

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    default:
      return "CUDNN_STATUS";
  }
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  if (emulation::enter() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor,
                                                     cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                                     int c, int h, int w) {
  return emulation::describe(tensor->image, format, type, {n, c, h, w});
}

cudnnStatus_t CUDNNWINAPI cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                                     cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return emulation::describe(filter->image, format, type, {k, c, h, w});
}

cudnnStatus_t CUDNNWINAPI cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                                          int pad_w, int stride_h, int stride_w,
                                                          int dilation_h, int dilation_w,
                                                          cudnnConvolutionMode_t mode,
                                                          cudnnDataType_t compute) {
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED;
  *convolution = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution,
                                                        int groups) {
  if (groups < 1) return CUDNN_STATUS_BAD_PARAM;
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  *activation = new cudnnActivationStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  delete activation;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                                       cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                                       double) {
  *activation = {mode, nan};
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
