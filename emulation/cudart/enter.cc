#include "emulation/cudart/enter.h"

namespace emulation {
namespace {

cudaError_t& last_error() noexcept {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

}  // namespace

cudaError_t note(cudaError_t error) noexcept {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error() = error;
  return error;
}

cudaError_t enter() noexcept {
  Machine& machine = Machine::get();
  if (machine.device_count() == 0) return cudaErrorNoDevice;
  const auto lock = machine.lock();
  return machine.lost(current_device());
}

cudaStreamCaptureMode& capture_mode() noexcept {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t forbid_while_capturing(Machine& machine) {
  if (capture_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t result = cudaSuccess;
  for (const auto& capture : machine.captures()) {
    const bool own =
        capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool others =
        capture_mode() == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!own && !others) continue;
    capture->invalid = true;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t synchronize(Machine& machine, Machine::Lock& lock, int device) {
  machine.wait(lock, device, [&] { return machine.is_idle(device); });
  return machine.lost(device);
}

}  // namespace emulation

using emulation::Machine;
using emulation::note;

extern "C" {

// A lost context stays lost: its error is not taken back.
cudaError_t CUDARTAPI cudaGetLastError(void) {
  const cudaError_t lost = emulation::enter();
  if (lost != cudaSuccess && lost != cudaErrorNoDevice) return lost;
  const cudaError_t error = emulation::last_error();
  emulation::last_error() = cudaSuccess;
  return error;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void) {
  const cudaError_t lost = emulation::enter();
  return lost != cudaSuccess && lost != cudaErrorNoDevice ? lost : emulation::last_error();
}

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define EMULATION_NAME(name) \
  case name:                 \
    return #name;
    EMULATION_NAME(cudaSuccess)
    EMULATION_NAME(cudaErrorInvalidValue)
    EMULATION_NAME(cudaErrorMemoryAllocation)
    EMULATION_NAME(cudaErrorInitializationError)
    EMULATION_NAME(cudaErrorInvalidConfiguration)
    EMULATION_NAME(cudaErrorInvalidDevice)
    EMULATION_NAME(cudaErrorNoDevice)
    EMULATION_NAME(cudaErrorInvalidResourceHandle)
    EMULATION_NAME(cudaErrorNotReady)
    EMULATION_NAME(cudaErrorIllegalAddress)
    EMULATION_NAME(cudaErrorLaunchFailure)
    EMULATION_NAME(cudaErrorECCUncorrectable)
    EMULATION_NAME(cudaErrorNotSupported)
    EMULATION_NAME(cudaErrorInvalidDeviceFunction)
    EMULATION_NAME(cudaErrorInvalidMemcpyDirection)
    EMULATION_NAME(cudaErrorStreamCaptureUnsupported)
    EMULATION_NAME(cudaErrorStreamCaptureInvalidated)
    EMULATION_NAME(cudaErrorStreamCaptureMerge)
    EMULATION_NAME(cudaErrorStreamCaptureUnmatched)
    EMULATION_NAME(cudaErrorStreamCaptureUnjoined)
    EMULATION_NAME(cudaErrorStreamCaptureIsolation)
    EMULATION_NAME(cudaErrorStreamCaptureImplicit)
    EMULATION_NAME(cudaErrorCapturedEvent)
    EMULATION_NAME(cudaErrorStreamCaptureWrongThread)
    EMULATION_NAME(cudaErrorUnknown)
#undef EMULATION_NAME
    default:
      return "unrecognized error code";
  }
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default:
      return cudaGetErrorName(error);
  }
}

}  // extern "C"
