#include "collectives/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/p2p/engine_buffer.h"
#include "collectives/p2p/store_oob_kv.h"
#include "collectives/shm/prefer_shared_memory.h"

namespace dtrain::tcp {
namespace {

std::string medium_of(Protection protection) {
  switch (protection) {
    case Protection::none:
      return "TCP, unprotected";
    case Protection::authenticate:
      return "TCP, authenticated";
    case Protection::encrypt:
      return "TCP, encrypted";
  }
  return "TCP";
}

}  // namespace

TcpTransport::TcpTransport(const TcpContext& shared, int rank, PeerConnections connected)
    : shared_(shared),
      rank_(rank),
      hosts_(std::move(connected.hosts)),
      medium_(medium_of(shared.protection)),
      has_core_(std::count(hosts_.begin(), hosts_.end(), host_of(rank)) <= ::sysconf(_SC_NPROCESSORS_ONLN)),
      engine_(rank, std::move(connected.connections)) {}

void TcpTransport::set_patient(bool patient) noexcept {
  engine_.set_patience(!patient    ? p2p::Patience::none
                       : has_core_ ? p2p::Patience::alone
                                   : p2p::Patience::waiting);
}

std::unique_ptr<p2p::UnboundBuffer> TcpTransport::make_buffer(void* data, std::size_t) {
  return std::make_unique<p2p::EngineBuffer<TcpProgressEngine>>(engine_, data);
}

void TcpTransport::close(bool) noexcept { engine_.close(); }

p2p::Endpoints TcpTransport::split(const std::vector<int>& members, const std::string& name,
                                   const Deadline& deadline) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  return make_tcp_endpoints(shared_, static_cast<int>(self - members.begin()),
                            static_cast<int>(members.size()), name, deadline);
}

p2p::Endpoints make_tcp_endpoints(const TcpContext& shared, int rank, int size, const std::string& name,
                                  const Deadline& deadline) {
  const std::string own_counter = fmt::format("tcp/{}/made/{}", name, rank);
  const std::string prefix = fmt::format("tcp/{}/{}", name, shared.store->add(own_counter, 1, deadline));
  p2p::Endpoints endpoints;
  endpoints.transport =
      std::make_unique<TcpTransport>(shared, rank, wire_up(shared, rank, size, prefix, deadline));
  endpoints.oob = std::make_unique<StoreOobKv>(*shared.store, prefix, rank);
  return prefer_shared_memory(std::move(endpoints), prefix, shared.locality, deadline);
}

}  // namespace dtrain::tcp
