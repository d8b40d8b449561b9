// The MPI module: a shared object that holds all that calls MPI (the mpi backend, and what launchers under
// mpirun ask), opened only when a job was started by mpirun or asks for backend mpi. Programs do not link
// MPI.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/library_version.h"

namespace dtrain::mpi {

/// Grows with every change of an interface that program and module share (this part, the backend's channels).
inline constexpr int kModuleInterface = 2;

/// What rank 0 tells the others: `one_host` when all processes gave the same identity, `size` of them.
using Offer = std::function<std::string(bool one_host, int size)>;

/// The part that knows no communicator, from the module's function `dtrain_mpi_basics`.
struct MpiPlugin {
  LibraryVersion (*version)();
  std::string (*exchange)(std::string_view identity, const Offer& offer);
};
using MpiPluginFunction = const MpiPlugin* (*)();

/// Opens libdtrain_mpi.so, or the file that $DTRAIN_MPI_MODULE names, and returns its symbol. Throws
/// UsageError naming what is missing (the module, or MPI itself) and how to get it.
void* module_symbol(const char* name);

/// Whether the module, and MPI with it, can be loaded here. Loads them.
bool is_here() noexcept;

/// MPI as the module was built with it and as it was loaded; does not initialise it. Throws UsageError as
/// module_symbol().
LibraryVersion version();

/// For a process that mpirun has started and that does nothing else with MPI. Collective over all processes
/// of the job: initialises MPI, compares `identity` (below 128 bytes), has rank 0 ask `offer`, and finalises
/// MPI. Returns on each what rank 0's said, which is cut after 511 bytes. Throws UsageError as
/// module_symbol().
std::string exchange(std::string_view identity, const Offer& offer);

}  // namespace dtrain::mpi
