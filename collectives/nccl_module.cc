#include "collectives/nccl_module.h"

#include "collectives/backends.h"
#include "runtime/base/error.h"
#include "runtime/device/cuda/module.h"

namespace dtrain {
namespace {

const NcclPlugin& nccl_part() {
  return *reinterpret_cast<NcclPluginFunction>(cuda::module_symbol("dtrain_nccl"))();
}

}  // namespace

LibraryVersion nccl_version() { return nccl_part().version(); }

std::unique_ptr<Communicator> make_nccl_communicator(const Bootstrap& bootstrap, Log& log) {
  if (bootstrap.device == nullptr || bootstrap.device->type() != DeviceType::cuda) {
    throw UsageError("backend nccl: expected a GPU to work on, got " +
                     (bootstrap.device == nullptr ? "none" : bootstrap.device->name()) +
                     "; use device cuda, or backend tcp");
  }
  if (bootstrap.store == nullptr) {
    throw UsageError(
        "backend nccl: expected a store to meet the other ranks in, got none; start the workers with "
        "dtrain-launch or set MASTER_ADDR and MASTER_PORT");
  }
  return nccl_part().make(bootstrap, log);
}

}  // namespace dtrain
