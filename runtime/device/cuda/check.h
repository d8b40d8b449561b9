// check() for the results of CUDA, cuBLAS and cuDNN calls, and owners for their handles.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/unique.h"
#if DTRAIN_HAVE_CUDNN
#include <cudnn.h>
#endif

namespace dtrain::cuda {

/// Throw DeviceError("what: name: text") unless the call succeeded.
inline void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result),
                    static_cast<int>(result));
}

inline void check(cublasStatus_t result, std::string_view what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      std::string(what) + ": " + cublasLtGetStatusName(result) + ": " + cublasLtGetStatusString(result),
      static_cast<int>(result));
}

#if DTRAIN_HAVE_CUDNN
inline void check(cudnnStatus_t result, std::string_view what) {
  if (result == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(std::string(what) + ": " + cudnnGetErrorString(result), static_cast<int>(result));
}
#endif

/// Traits of a handle that is a pointer.
template <class Pointer, auto Close>
struct PointerTraits {
  using Handle = Pointer;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle handle) noexcept { static_cast<void>(Close(handle)); }
};

using UniqueStream = Unique<PointerTraits<cudaStream_t, cudaStreamDestroy>>;
using UniqueEvent = Unique<PointerTraits<cudaEvent_t, cudaEventDestroy>>;
using UniquePinned = Unique<PointerTraits<void*, cudaFreeHost>>;

/// An event without timing.
inline UniqueEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create a CUDA event");
  return UniqueEvent(event);
}

}  // namespace dtrain::cuda
