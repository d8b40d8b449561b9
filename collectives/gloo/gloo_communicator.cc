// The gloo backend: finds the address to listen on and hands a connected transport to the common
// communicator.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>

#include "collectives/backends.h"
#include "collectives/gloo/gloo_transport.h"
#include "collectives/p2p/p2p_communicator.h"
#include "collectives/p2p/signals.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

struct AddressListTraits {
  using Handle = addrinfo*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle list) noexcept { ::freeaddrinfo(list); }
};

// This machine's address on the route to `master`; empty when there is none. Sends nothing: connecting a
// datagram socket only looks the route up.
std::string address_towards(const std::string& master) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(master.c_str(), "9", &hints, &found) != 0) return "";
  const Unique<AddressListTraits> list(found);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const UniqueFd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (socket && ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      return text.data();
    }
  }
  return "";
}

std::shared_ptr<gloo::transport::Device> make_gloo_device(const Bootstrap& bootstrap) {
  gloo::transport::tcp::attr wanted;
  wanted.iface = bootstrap.interface;
  if (wanted.iface.empty()) {
    wanted.hostname = bootstrap.address;
    if (wanted.hostname.empty() && !bootstrap.master.empty())
      wanted.hostname = address_towards(bootstrap.master);
    if (wanted.hostname.empty()) wanted.hostname = "127.0.0.1";
  }
  try {
    const p2p::AllSignalsBlocked for_its_thread;
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
