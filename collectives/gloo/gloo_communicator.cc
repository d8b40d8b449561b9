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

constexpr std::uint16_t kAnyPort = 9;  // routes do not depend on it

// This machine's address on the way to `master`; empty when there is none.
std::string address_towards(const std::string& master, Duration timeout) {
  try {
    for (const SocketAddress& address : resolve({master, kAnyPort}, Deadline::after(timeout))) {
      try {
        return route_to(address).address;
      } catch (const SystemError&) {
        // IPv6, say, where only IPv4 is set up: another address may have a route.
      }
    }
  } catch (const PeerError&) {
    // Not a name here; Gloo then listens where one machine's ranks find each other.
  }
  return "";
}

std::shared_ptr<gloo::transport::Device> make_gloo_device(const Bootstrap& bootstrap) {
  gloo::transport::tcp::attr wanted;
  wanted.iface = bootstrap.interface;
  if (wanted.iface.empty()) {
    wanted.hostname = bootstrap.address;
    if (wanted.hostname.empty() && !bootstrap.master.empty())
      wanted.hostname = address_towards(bootstrap.master, bootstrap.timeout);
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

}  // namespace

bool gloo_is_built() noexcept { return true; }

std::unique_ptr<Communicator> make_gloo_communicator(const Bootstrap& bootstrap, Log& log) {
  if (bootstrap.store == nullptr) {
    throw UsageError(
        "backend gloo: expected a store to meet the other ranks in, got none; start the workers with "
        "dtrain-launch or "
        "set MASTER_ADDR and MASTER_PORT");
  }
  const GlooSite site{make_gloo_device(bootstrap), bootstrap.store, bootstrap.host, bootstrap.timeout,
                      bootstrap.share_memory};
  return p2p::make_p2p_communicator(make_gloo_channels(site, bootstrap.rank, bootstrap.size, bootstrap.name,
                                                       Deadline::after(bootstrap.timeout)),
                                    bootstrap.name, bootstrap.timeout, log, bootstrap.spans);
}

}  // namespace dtrain
