// How make_device reaches CUDA. The library is always asked; a build without CUDA has no_cuda.cc to answer.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace dtrain::cuda {

/// Number of CUDA devices that this build, driver and CUDA_VISIBLE_DEVICES let this process use; 0 when none.
int device_count() noexcept;

/// Throws UsageError when this build has no CUDA or the machine no device of this index.
std::shared_ptr<Device> make_cuda_device(int index);

}  // namespace dtrain::cuda
