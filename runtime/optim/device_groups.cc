#include "runtime/optim/device_groups.h"

#include <algorithm>

#include "runtime/device/between.h"

namespace dtrain {

std::size_t DeviceGroups::find(const std::shared_ptr<Device>& device) {
  const auto known =
      std::ranges::find_if(devices_, [&](const auto& other) { return share_memory(*other, *device); });
  const auto group = static_cast<std::size_t>(known - devices_.begin());
  if (known == devices_.end()) devices_.push_back(device);
  return group;
}

}  // namespace dtrain
