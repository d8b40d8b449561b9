// check() for the results of NCCL and CUDA calls of the NCCL backend, and owners for their handles.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/unique.h"

namespace dtrain::nccl {

inline void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(result) + ": " + cudaGetErrorString(result),
                    static_cast<int>(result));
}

/// Text for a failed call; NCCL keeps the details of the last one.
inline std::string describe(ncclResult_t result, ncclComm_t comm) {
  const char* details = ncclGetLastError(comm);
  std::string text = ncclGetErrorString(result);
  if (details != nullptr && *details != '\0') text += std::string(": ") + details;
  return text;
}

/// A call that is still under way in the background counts as good; ask the communicator later.
inline void check(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw DeviceError(std::string(what) + ": NCCL: " + describe(result, comm), static_cast<int>(result));
}

/// Between two looks at something that is mostly over in a few microseconds: at first only lets others run, a
/// sleep takes longer than what is waited for; later sleeps.
class Patience {
 public:
  void wait() {
    if (std::chrono::steady_clock::now() < sleep_from_) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  static constexpr std::chrono::microseconds kSpin{200}, kNap{20};
  const std::chrono::steady_clock::time_point sleep_from_ = std::chrono::steady_clock::now() + kSpin;
};

struct StreamTraits {
  using Handle = cudaStream_t;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle stream) noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct EventTraits {
  using Handle = cudaEvent_t;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle event) noexcept { static_cast<void>(cudaEventDestroy(event)); }
};
struct CommTraits {
  using Handle = ncclComm_t;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle comm) noexcept { static_cast<void>(ncclCommAbort(comm)); }
};
struct DeviceMemoryTraits {
  using Handle = void*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { static_cast<void>(cudaFree(memory)); }
};
struct PinnedMemoryTraits {
  using Handle = void*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { static_cast<void>(cudaFreeHost(memory)); }
};
using UniqueStream = Unique<StreamTraits>;
using UniqueEvent = Unique<EventTraits>;
using UniqueComm = Unique<CommTraits>;
using UniqueDeviceMemory = Unique<DeviceMemoryTraits>;
using UniquePinned = Unique<PinnedMemoryTraits>;

inline UniqueEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create a CUDA event");
  return UniqueEvent(event);
}

}  // namespace dtrain::nccl
