// Where tensors of several devices lie: one kernel call works on those of one device group.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/device/device.h"

namespace dtrain {

/// Devices in the order in which they came; those that share memory (all CPUs) are one device group, which
/// the first of them stands for.
class DeviceGroups {
 public:
  /// The number of the device group of `device`, which is a new one where it shares memory with none there
  /// is.
  std::size_t find(const std::shared_ptr<Device>& device);
  const std::vector<std::shared_ptr<Device>>& devices() const noexcept { return devices_; }

 private:
  std::vector<std::shared_ptr<Device>> devices_;
};

}  // namespace dtrain
