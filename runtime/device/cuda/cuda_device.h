// How make_device reaches CUDA: through the module (module.h), which may be absent.
#pragma once

#include <memory>
#include <string>

#include "runtime/device/device.h"

namespace dtrain::cuda {

/// Number of CUDA devices that module, driver and CUDA_VISIBLE_DEVICES let this process use; 0 when none.
/// Cheap where there is no NVIDIA driver: then the module is not even looked for.
int device_count() noexcept;

/// One line about driver, libraries and devices. Throws UsageError saying what is missing.
std::string describe();

/// Index that means: the worker's own, options.local_rank, or 0 where only one device is visible.
inline constexpr int kOwnDevice = -1;

/// The calling thread is the one that may use the device (but for allocate and deallocate). Throws UsageError
/// when there is no module, no driver or no device of this index.
std::shared_ptr<Device> make_cuda_device(int index, const DeviceOptions& options);

}  // namespace dtrain::cuda
