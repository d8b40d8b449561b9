// What two devices of one process have to do with each other.
#pragma once

#include <cstddef>

#include "runtime/device/device.h"

namespace dtrain {

/// Whether kernels of each work on memory of the other: they are one device, or CPUs, which share the host's
/// memory.
bool share_memory(const Device& a, const Device& b) noexcept;

/// Copies `bytes` from memory of `source` to memory of `target`: after what is queued on the compute streams
/// of both, and before what is queued on them from now on, so that `from` may be given back at once. Two GPUs
/// do that without the host waiting; where one side is host memory the copy has happened when this returns.
/// Throws DeviceError.
void copy_between(Device& source, const void* from, Device& target, void* to, std::size_t bytes);

}  // namespace dtrain
