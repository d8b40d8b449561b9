// dtrain-mpi-exchange: started by each launcher under mpirun; all of them leave knowing where rank 0's
// launcher can be reached and the job's secret. Prints one line of JSON on stdout, which is the launcher's
// pipe.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "runtime/base/error.h"

namespace {

constexpr std::size_t kHostBytes = 128;
constexpr std::size_t kMessageBytes = 512;

// Equal for two processes exactly when they share this kernel's network: loopback connects them then.
std::array<char, kHostBytes> host_identity() {
  std::array<char, kHostBytes> identity{};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::size_t length = std::min<std::size_t>(boot.size(), 60);
  std::memcpy(identity.data(), boot.data(), length);
  if (::readlink("/proc/self/ns/net", identity.data() + length, kHostBytes - length - 1) < 0)
    identity[length] = '?';
  return identity;
}

bool all_on_one_host(int size) {
  const auto own = host_identity();
  std::vector<char> all(kHostBytes * static_cast<std::size_t>(size));
  MPI_Allgather(own.data(), kHostBytes, MPI_CHAR, all.data(), kHostBytes, MPI_CHAR, MPI_COMM_WORLD);
  for (std::size_t at = 0; at < all.size(); at += kHostBytes) {
    if (std::memcmp(all.data() + at, own.data(), kHostBytes) != 0) return false;
  }
  return true;
}

// What rank 0 tells everybody; on failure a text that does not begin with '{'.
std::string offer(bool one_host, const std::string& interface, int size) {
  try {
    const std::string address =
        one_host && interface.empty() ? "127.0.0.1" : dtrain::outward_address(interface);
    if (address.empty())
      return fmt::format("no address of {} can be reached from other machines; name one with --iface",
                         interface.empty() ? "any interface" : interface);
    const dtrain::Listener listener =
        dtrain::listen_on_lasting_port(address, dtrain::Deadline::after(std::chrono::seconds(5)));
    return fmt::format(R"({{"address": "{}", "port": {}, "token": "{}", "size": {}}})", address,
                       listener.port(), dtrain::make_token().hex(), size);
  } catch (const dtrain::Error& error) {
    return error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string interface;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--iface") == 0) interface = argv[i + 1];
  }
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool one_host = all_on_one_host(size);
  std::array<char, kMessageBytes> message{};
  if (rank == 0) offer(one_host, interface, size).copy(message.data(), kMessageBytes - 1);
  MPI_Bcast(message.data(), kMessageBytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  const bool good = message[0] == '{';
  std::fprintf(good ? stdout : stderr, "%s%s\n", good ? "" : "dtrain-mpi-exchange: ", message.data());
  return good ? 0 : 1;
}
