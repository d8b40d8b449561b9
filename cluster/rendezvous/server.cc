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

JobRules rules_of(const ServerOptions& options, const SocketAddress& address) {
  JobRules rules;
  rules.min_nodes = options.min_nodes;
  rules.max_nodes = options.max_nodes;
  rules.spares = options.spares;
  rules.max_restarts = options.max_restarts;
  rules.join_timeout = options.join_timeout;
  rules.last_call = options.last_call;
  rules.lease = options.lease;
  rules.lost_after = options.lost_after;
  rules.form_within = options.form_within;
  rules.stop_within = options.stop_within;
  rules.settle = options.settle;
  rules.waiting_every = options.waiting_every;
  rules.launch_time_ns = options.launch_time_ns;
  rules.run_id = options.run_id;
  rules.job = options.leadership == nullptr ? 0 : options.leadership->instance_id();
  rules.hosts = options.hosts;
  rules.listening = where(address);
  return rules;
}

}  // namespace

struct RendezvousServer::Impl {
  Impl(const ServerOptions& options, const SocketAddress& address, bool stands_by)
      : observer(options, {address.host(), address.port()}, rules_of(options, address), stands_by) {}

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
