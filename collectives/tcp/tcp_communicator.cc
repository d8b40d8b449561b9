// The tcp backend: finds the address to listen on and hands a connected transport to the common communicator.
#include <fmt/format.h>

#include "cluster/net/endpoint.h"
#include "collectives/backends.h"
#include "collectives/p2p/p2p_communicator.h"
#include "collectives/tcp/tcp_transport.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::string listening_host(const Bootstrap& bootstrap) {
  if (!bootstrap.interface.empty()) {
    std::string address = outward_address(bootstrap.interface);
    if (!address.empty()) return address;
    if (bootstrap.interface == "lo") return "127.0.0.1";
    throw UsageError(
        fmt::format("backend tcp: expected a network interface that is up, got '{}'", bootstrap.interface));
  }
  if (!bootstrap.address.empty()) return bootstrap.address;
  std::string address;
  if (!bootstrap.master.empty())
    address = address_towards(bootstrap.master, Deadline::after(bootstrap.timeout));
  return address.empty() ? "127.0.0.1" : address;
}

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(const Bootstrap& bootstrap, Log& log) {
  if (bootstrap.store == nullptr) {
    throw UsageError(
        "backend tcp: expected a store to meet the other ranks in, got none; start the workers with "
        "dtrain-launch or set MASTER_ADDR and MASTER_PORT");
  }
  const tcp::TcpContext shared{bootstrap.store,
                               bootstrap.host,
                               listening_host(bootstrap),
                               bootstrap.token,
                               bootstrap.protection,
                               bootstrap.locality,
                               &log};
  return p2p::make_p2p_communicator(
      tcp::make_tcp_endpoints(shared, bootstrap.rank, bootstrap.size, bootstrap.name,
                              Deadline::after(bootstrap.timeout)),
      bootstrap.name, bootstrap.timeout, log, bootstrap.spans);
}

}  // namespace dtrain
