// What the GPUs of this module have done.
#pragma once

#include "runtime/device/device_work.h"

namespace dtrain::cuda {

/// Lives forever.
const DeviceWorkPlugin& work_part();

}  // namespace dtrain::cuda
