// dtrain-mpi-exchange: started by each launcher under mpirun; all of them leave knowing where rank 0's
// launcher can be reached and the job's secret. Prints one line of JSON on stdout, which is the launcher's
// pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "cluster/mpi/module.h"
#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "runtime/base/error.h"

namespace {

// Equal for two processes exactly when they share this kernel's network: loopback connects them then.
std::string host_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  identity.resize(std::min<std::size_t>(identity.size(), 60));
  std::array<char, 64> network{};
  const bool told = ::readlink("/proc/self/ns/net", network.data(), network.size() - 1) >= 0;
  return identity + (told ? network.data() : "?");
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

std::string agree(const std::string& interface) {
  try {
    return dtrain::mpi::exchange(host_identity(),
                                 [&](bool one_host, int size) { return offer(one_host, interface, size); });
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
  const std::string message = agree(interface);
  const bool good = message.starts_with('{');
  std::fprintf(good ? stdout : stderr, "%s%s\n", good ? "" : "dtrain-mpi-exchange: ", message.c_str());
  return good ? 0 : 1;
}
