#include "cluster/mpi/module.h"

#include "runtime/base/error.h"
#include "runtime/base/files/module_file.h"

namespace dtrain::mpi {
namespace {

const MpiPlugin& basic_part() {
  return *reinterpret_cast<MpiPluginFunction>(module_symbol("dtrain_mpi_basics"))();
}

}  // namespace

void* module_symbol(const char* name) {
  static const ModuleFile kModule{
      .name = "MPI module",
      .file = "libdtrain_mpi.so",
      .path_variable = "DTRAIN_MPI_MODULE",
      .head = "dtrain_mpi_module",
      .interface = kModuleInterface,
      .when_missing =
          "build it with -DDTRAIN_WITH_MPI=ON (libopenmpi-dev needed), set DTRAIN_MPI_MODULE to "
          "its path, or use backend tcp",
      .when_not_usable =
          "it needs the MPI it was built with: install Open MPI (apt install openmpi-bin), put "
          "another place of it in LD_LIBRARY_PATH, or use backend tcp",
      .global = true};
  return dtrain::module_symbol(kModule, name);
}

bool is_here() noexcept {
  try {
    return basic_part().version != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

LibraryVersion version() { return basic_part().version(); }

std::string exchange(std::string_view identity, const Offer& offer) {
  return basic_part().exchange(identity, offer);
}

}  // namespace dtrain::mpi
