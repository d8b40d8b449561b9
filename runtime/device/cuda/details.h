// The module's own account of itself for `dtrain doctor`.
#pragma once

#include "runtime/device/cuda/module.h"

namespace dtrain::cuda {

/// Never throws for want of a driver or a GPU: what cannot be told is left out.
ModuleDetails find_details();

}  // namespace dtrain::cuda
