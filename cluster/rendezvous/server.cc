// A store's server, and the observer that makes it a leader.
#include "cluster/rendezvous/server.h"

#include <fmt/format.h>

#include "cluster/rendezvous/leader/server_observer.h"
#include "cluster/store/store_server.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

std::string where(const SocketAddress& address) {
  if (address.is_any()) return address.text() + " (every interface)";
  try {
    const std::string interface = route_to(address).interface;
    return interface.empty() ? address.text() : fmt::format("{} ({})", address.text(), interface);
  } catch (const Error&) {
    return address.text();
  }
}

ServerOptions completed(ServerOptions options, const SocketAddress& address) {
  options.rules.job = options.leadership == nullptr ? 0 : options.leadership->instance_id();
  options.rules.listening = where(address);
  return options;
}

}  // namespace

struct RendezvousServer::Impl {
  Impl(const ServerOptions& options, const SocketAddress& address, bool stands_by)
      : observer(completed(options, address), {address.host(), address.port()}, stands_by) {}

  ServerObserver observer;
  std::unique_ptr<StoreServer> server;  // last: it ends before what it calls
};

RendezvousServer::RendezvousServer(Listener listener, const ServerOptions& options, bool stands_by)
    : impl_(std::make_unique<Impl>(options, listener.address, stands_by)) {
  StoreServerOptions store;
  store.token = options.token;
  store.insecure = options.insecure;
  store.job = options.job;
  store.observer = &impl_->observer;
  impl_->server = std::make_unique<StoreServer>(std::move(listener), std::move(store));
}

RendezvousServer::~RendezvousServer() = default;

const SocketAddress& RendezvousServer::address() const noexcept { return impl_->server->address(); }

Endpoint RendezvousServer::endpoint() const { return impl_->observer.endpoint(); }

void RendezvousServer::lead(Succession succession) { impl_->observer.lead(std::move(succession)); }

bool RendezvousServer::leads() const { return impl_->observer.leads(); }

bool RendezvousServer::wait_until_over(const Deadline& deadline) const {
  switch (impl_->observer.wait_until_over(deadline)) {
    case ServerObserver::End::heard:
      return impl_->server->wait_until_clients(0, deadline);
    case ServerObserver::End::over:
    case ServerObserver::End::elsewhere:
      return true;
    case ServerObserver::End::not_yet:
      break;
  }
  return false;
}

}  // namespace dtrain::rendezvous
