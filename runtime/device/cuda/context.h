// What every part of the CUDA device shares.
#pragma once

#include "runtime/device/cuda/faults.h"
#include "runtime/device/cuda/memory/memory.h"
#include "runtime/device/device.h"

namespace dtrain::cuda {

/// Borrowed parts; the device owns them.
struct Context {
  cudaStream_t stream;  ///< the compute stream
  Memory& memory;
  Faults& faults;
  DeviceOptions options;
  int multiprocessors;
};

}  // namespace dtrain::cuda
