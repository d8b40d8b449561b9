// The NCCL part of the CUDA module (runtime/device/cuda/module.h), as the program sees it.
#pragma once

#include <memory>

#include "collectives/factory.h"
#include "runtime/base/library_version.h"

namespace dtrain {

/// From the module's function `dtrain_nccl`.
struct NcclPlugin {
  /// `bootstrap` is complete: store, device and host are set.
  std::unique_ptr<Communicator> (*make)(const Bootstrap& bootstrap, Log& log);
  LibraryVersion (*version)();
};
using NcclPluginFunction = const NcclPlugin* (*)();

/// NCCL as the module was built with it and as it was loaded. Throws UsageError when there is no module, or
/// none with NCCL.
LibraryVersion nccl_version();

}  // namespace dtrain
