// The gloo backend: finds the address to listen on and hands a connected transport to the common
// communicator.
#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "cluster/net/endpoint.h"
#include "collectives/backends.h"
#include "collectives/gloo/gloo_transport.h"
#include "collectives/p2p/p2p_communicator.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::shared_ptr<gloo::transport::Device> make_gloo_device(const Bootstrap& bootstrap) {
  gloo::transport::tcp::attr wanted;
  wanted.iface = bootstrap.interface;
  if (wanted.iface.empty()) {
    wanted.hostname = bootstrap.address;
    if (wanted.hostname.empty() && !bootstrap.master.empty())
      wanted.hostname = address_towards(bootstrap.master, Deadline::after(bootstrap.timeout));
    if (wanted.hostname.empty()) wanted.hostname = "127.0.0.1";
  }
  try {
    const AllSignalsBlocked for_its_thread;
    return gloo::transport::tcp::CreateDevice(wanted);
  } catch (const std::exception& error) {
    throw UsageError(fmt::format(
        "backend gloo: cannot listen on {}: {}",
        wanted.iface.empty() ? "address " + wanted.hostname : "interface " + wanted.iface, error.what()));
  }
}

void warn_of_open_connections(const p2p::Transport& transport, Log& log) {
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (transport.host_of(rank) == transport.host_of(0)) continue;
    log.write(LogLevel::warning,
              "backend gloo: its connections between machines are not authenticated; use tcp, or a private "
              "network");
    return;
  }
}

}  // namespace

bool gloo_is_built() noexcept { return true; }

std::unique_ptr<Communicator> make_gloo_communicator(const Bootstrap& bootstrap, Log& log) {
  if (bootstrap.store == nullptr) {
    throw UsageError(
        "backend gloo: expected a store to meet the other ranks in, got none; start the workers with "
        "dtrain-launch or "
        "set MASTER_ADDR and MASTER_PORT");
  }
  const GlooContext shared{make_gloo_device(bootstrap), bootstrap.store, bootstrap.host, bootstrap.timeout,
                           bootstrap.locality};
  p2p::Endpoints endpoints = make_gloo_endpoints(shared, bootstrap.rank, bootstrap.size, bootstrap.name,
                                                 Deadline::after(bootstrap.timeout));
  if (bootstrap.rank == 0) warn_of_open_connections(*endpoints.transport, log);
  return p2p::make_p2p_communicator(std::move(endpoints), bootstrap.name, bootstrap.timeout, log,
                                    bootstrap.spans);
}

}  // namespace dtrain
