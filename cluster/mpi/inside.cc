// Inside the MPI module: its head, its version, and what launchers ask. Nothing else of dtrain links this
// file.
#include <dlfcn.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cluster/mpi/module.h"
#include "runtime/base/files/module_file.h"

namespace dtrain::mpi {
namespace {

constexpr std::size_t kIdentityBytes = 128;
constexpr std::size_t kMessageBytes = 512;

std::string loaded_file() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<void*>(&MPI_Get_library_version), &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "";
}

// "Open MPI v4.1.4, package: …", "MPICH Version:\t4.0.2\n…"
LibraryVersion library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  LibraryVersion version{"MPI", {}, {}, loaded_file()};
  if (MPI_Get_library_version(text.data(), &length) == MPI_SUCCESS) {
    const std::string_view words(text.data());
    if (const std::size_t digit = words.find_first_of("0123456789"); digit != std::string_view::npos)
      std::sscanf(text.data() + digit, "%d.%d.%d", &version.loaded.major, &version.loaded.minor,
                  &version.loaded.patch);
    if (words.starts_with("Open MPI")) version.name = "Open MPI";
    if (words.starts_with("MPICH")) version.name = "MPICH";
  }
#ifdef OMPI_MAJOR_VERSION
  version.built = {OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION};
#elif defined(MPICH_VERSION)
  std::sscanf(MPICH_VERSION, "%d.%d.%d", &version.built.major, &version.built.minor, &version.built.patch);
#endif
  return version;
}

bool all_equal(std::string_view identity, int size) {
  std::array<char, kIdentityBytes> own{};
  identity.copy(own.data(), kIdentityBytes - 1);
  std::vector<char> all(kIdentityBytes * static_cast<std::size_t>(size));
  MPI_Allgather(own.data(), kIdentityBytes, MPI_CHAR, all.data(), kIdentityBytes, MPI_CHAR, MPI_COMM_WORLD);
  for (std::size_t at = 0; at < all.size(); at += kIdentityBytes) {
    if (std::memcmp(all.data() + at, own.data(), kIdentityBytes) != 0) return false;
  }
  return true;
}

// MPI's default of ending the process on an error is what a program that does nothing else wants.
std::string exchange_inside(std::string_view identity, const Offer& offer) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool one_host = all_equal(identity, size);
  std::array<char, kMessageBytes> message{};
  if (rank == 0) offer(one_host, size).copy(message.data(), kMessageBytes - 1);
  MPI_Bcast(message.data(), kMessageBytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return message.data();
}

}  // namespace
}  // namespace dtrain::mpi

#define DTRAIN_MODULE_EXPORT extern "C" __attribute__((visibility("default")))

DTRAIN_MODULE_EXPORT const dtrain::ModuleHead* dtrain_mpi_module() {
  static constexpr dtrain::ModuleHead kHead{dtrain::mpi::kModuleInterface, DTRAIN_VERSION};
  return &kHead;
}

DTRAIN_MODULE_EXPORT const dtrain::mpi::MpiPlugin* dtrain_mpi_basics() {
  static constexpr dtrain::mpi::MpiPlugin kPart{dtrain::mpi::library_version, dtrain::mpi::exchange_inside};
  return &kPart;
}
