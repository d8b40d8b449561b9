// The NCCL part of the CUDA module (runtime/device/cuda/module.h), as the program sees it.
#pragma once

#include <memory>

#include "collectives/factory.h"

namespace dtrain {

/// From the module's function `dtrain_nccl`.
struct NcclPart {
  /// `bootstrap` is complete: store, device and host are set.
  std::unique_ptr<Communicator> (*make)(const Bootstrap& bootstrap, Log& log);
};
using NcclPartFunction = const NcclPart* (*)();

}  // namespace dtrain
