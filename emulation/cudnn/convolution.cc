// cuDNN's convolutions: which algorithm, and running it.
#include <algorithm>
#include <cstring>

#include "emulation/cudart/enter.h"
#include "emulation/cudnn/handles.h"
#include "emulation/cudnn/queue.h"
#include "emulation/cudnn/support.h"

namespace emulation {
namespace {

Convolution join(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                 cudnnTensorDescriptor_t y) {
  Convolution joined;
  joined.input = x->image;
  joined.filter = w->image;
  joined.output = y->image;
  std::memcpy(joined.pad, c->pad, sizeof joined.pad);
  std::memcpy(joined.stride, c->stride, sizeof joined.stride);
  std::memcpy(joined.dilation, c->dilation, sizeof joined.dilation);
  joined.groups = c->groups;
  joined.tf32 = x->image.type == Element::f32 && c->math != CUDNN_FMA_MATH;
  return joined;
}

template <class Result>
cudnnStatus_t list(Pass pass, const Convolution& convolution, int wanted, int* returned, Result* results) {
  *returned = 0;
  const std::vector<Algorithm> found = algorithms(pass, convolution);
  if (found.empty()) return CUDNN_STATUS_NOT_SUPPORTED;
  for (const Algorithm& algorithm : found) {
    if (*returned == wanted) break;
    Result& result = results[(*returned)++];
    result = Result{};
    result.algo = static_cast<decltype(result.algo)>(algorithm.number);
    result.status = CUDNN_STATUS_SUCCESS;
    result.time = static_cast<float>(*returned);
    result.memory = algorithm.workspace_bytes;
    result.determinism = algorithm.determinism;
    result.mathType = algorithm.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

/// Trying algorithms runs them: that cannot be recorded, and what they write is overwritten.
template <class Result>
cudnnStatus_t try_out(cudnnHandle_t handle, Pass pass, const Convolution& convolution, void* written,
                      const Image& shape, int wanted, int* returned, Result* results) {
  *returned = 0;
  if (enter() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  Machine& machine = Machine::get();
  auto lock = machine.lock();
  const auto stream = machine.find(handle->stream);
  if (!stream || forbid_while_capturing(machine) != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  const auto bytes = static_cast<std::size_t>(shape.count()) * size_of(shape.type);
  machine.queue(stream, at_once(Kind::library, "cudnnFind", [=] { std::memset(written, 0xFF, bytes); }));
  machine.wait(lock, stream->device, [&] { return stream->queue.empty(); });
  lock.unlock();
  return list(pass, convolution, wanted, returned, results);
}

/// Whether the algorithm is among those for the descriptor's math, and has the workspace it wants.
cudnnStatus_t check(Pass pass, const Convolution& convolution, int number, cudnnMathType_t math,
                    const void* workspace, std::size_t workspace_bytes) {
  const bool plain = math == CUDNN_FMA_MATH;
  for (const Algorithm& algorithm : algorithms(pass, convolution)) {
    if (algorithm.number != number) continue;
    if (plain != (algorithm.math == CUDNN_FMA_MATH) && algorithm.determinism == CUDNN_DETERMINISTIC) continue;
    const bool enough = workspace_bytes >= algorithm.workspace_bytes &&
                        (algorithm.workspace_bytes == 0 || workspace != nullptr);
    return enough ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

/// A convolution's pass reads two of its arrays and writes the third, which it reads too where that counts.
Work work_of(const char* name, Pass pass, const Convolution& c, float before = 0) {
  const std::uint64_t all = bytes_of(c.input) + bytes_of(c.filter) + bytes_of(c.output);
  const std::uint64_t written = bytes_of(pass == Pass::forward    ? c.output
                                         : pass == Pass::to_input ? c.input
                                                                  : c.filter);
  Work work{name, all - (before == 0 ? written : 0), written};
  work.operations = 2.0 * static_cast<double>(c.output.count()) *
                    static_cast<double>(c.filter.count() / std::max<std::int64_t>(c.filter.extent[0], 1));
  work.arithmetic = arithmetic_of(c);
  return work;
}

float number(const void* scalar) { return *static_cast<const float*>(scalar); }

}  // namespace
}  // namespace emulation

using emulation::Convolution;
using emulation::join;
using emulation::number;
using emulation::Pass;

extern "C" {

cudnnStatus_t CUDNNWINAPI cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t y, const int wanted, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* results) {
  return emulation::list(Pass::forward, join(x, w, c, y), wanted, returned, results);
}

cudnnStatus_t CUDNNWINAPI cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx, const int wanted, int* returned,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return emulation::list(Pass::to_input, join(dx, w, c, dy), wanted, returned, results);
}

cudnnStatus_t CUDNNWINAPI cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw, const int wanted, int* returned,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return emulation::list(Pass::to_filter, join(x, dw, c, dy), wanted, returned, results);
}

cudnnStatus_t CUDNNWINAPI cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void*, const cudnnFilterDescriptor_t w,
    const void*, const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t y, void* written,
    const int wanted, int* returned, cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
  return emulation::try_out(handle, Pass::forward, join(x, w, c, y), written, y->image, wanted, returned,
                            results);
}

cudnnStatus_t CUDNNWINAPI cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx, void* written,
    const int wanted, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t) {
  return emulation::try_out(handle, Pass::to_input, join(dx, w, c, dy), written, dx->image, wanted, returned,
                            results);
}

cudnnStatus_t CUDNNWINAPI cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw, void* written,
    const int wanted, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results, void*, size_t) {
  return emulation::try_out(handle, Pass::to_filter, join(x, dw, c, dy), written, dw->image, wanted, returned,
                            results);
}

cudnnStatus_t CUDNNWINAPI cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                                  const cudnnTensorDescriptor_t x, const void* x_data,
                                                  const cudnnFilterDescriptor_t w, const void* w_data,
                                                  const cudnnConvolutionDescriptor_t c,
                                                  cudnnConvolutionFwdAlgo_t algo, void* workspace,
                                                  size_t bytes, const void* beta,
                                                  const cudnnTensorDescriptor_t y, void* y_data) {
  const Convolution joined = join(x, w, c, y);
  const cudnnStatus_t status = emulation::check(Pass::forward, joined, algo, c->math, workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return emulation::queue(handle,
                          emulation::work_of("cudnnConvolutionForward", Pass::forward, joined, number(beta)),
                          [=, a = number(alpha), b = number(beta)] {
                            emulation::convolve(joined, a, x_data, w_data, b, y_data, nullptr, false);
                          });
}

// Refused, by its documentation: activations other than relu and identity, identity but for one algorithm,
// NaNs that are to pass through, and z in another place than y when it counts.
cudnnStatus_t CUDNNWINAPI cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnFilterDescriptor_t w, const void* w_data, const cudnnConvolutionDescriptor_t c,
    cudnnConvolutionFwdAlgo_t algo, void* workspace, size_t bytes, const void* beta,
    const cudnnTensorDescriptor_t, const void*, const cudnnTensorDescriptor_t bias, const void* bias_data,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y, void* y_data) {
  const bool relu = activation->mode == CUDNN_ACTIVATION_RELU;
  if (!relu && activation->mode != CUDNN_ACTIVATION_IDENTITY) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!relu && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return CUDNN_STATUS_NOT_SUPPORTED;
  if (activation->nan != CUDNN_NOT_PROPAGATE_NAN) return CUDNN_STATUS_NOT_SUPPORTED;
  if (bias->image.type != y->image.type || bias->image.extent[1] != y->image.extent[1] || number(beta) != 0) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  const Convolution joined = join(x, w, c, y);
  const cudnnStatus_t status = emulation::check(Pass::forward, joined, algo, c->math, workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return emulation::queue(
      handle, emulation::work_of("cudnnConvolutionBiasActivationForward", Pass::forward, joined),
      [=, a = number(alpha)] { emulation::convolve(joined, a, x_data, w_data, 0, y_data, bias_data, relu); });
}

cudnnStatus_t CUDNNWINAPI cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                                       const cudnnFilterDescriptor_t w, const void* w_data,
                                                       const cudnnTensorDescriptor_t dy, const void* dy_data,
                                                       const cudnnConvolutionDescriptor_t c,
                                                       cudnnConvolutionBwdDataAlgo_t algo, void* workspace,
                                                       size_t bytes, const void* beta,
                                                       const cudnnTensorDescriptor_t dx, void* dx_data) {
  const Convolution joined = join(dx, w, c, dy);
  const cudnnStatus_t status = emulation::check(Pass::to_input, joined, algo, c->math, workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return emulation::queue(
      handle, emulation::work_of("cudnnConvolutionBackwardData", Pass::to_input, joined, number(beta)),
      [=, a = number(alpha), b = number(beta)] {
        emulation::convolve_back_to_input(joined, a, w_data, dy_data, b, dx_data);
      });
}

cudnnStatus_t CUDNNWINAPI cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnTensorDescriptor_t dy, const void* dy_data, const cudnnConvolutionDescriptor_t c,
    cudnnConvolutionBwdFilterAlgo_t algo, void* workspace, size_t bytes, const void* beta,
    const cudnnFilterDescriptor_t dw, void* dw_data) {
  const Convolution joined = join(x, dw, c, dy);
  const cudnnStatus_t status = emulation::check(Pass::to_filter, joined, algo, c->math, workspace, bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return emulation::queue(
      handle, emulation::work_of("cudnnConvolutionBackwardFilter", Pass::to_filter, joined, number(beta)),
      [=, a = number(alpha), b = number(beta)] {
        emulation::convolve_back_to_filter(joined, a, x_data, dy_data, b, dw_data);
      });
}

}  // extern "C"
