#include "collectives/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/p2p/store_board.h"
#include "collectives/p2p/traffic_region.h"
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

TcpTransport::TcpTransport(const TcpSite& site, int rank, Gathered gathered)
    : site_(site),
      rank_(rank),
      hosts_(std::move(gathered.hosts)),
      medium_(medium_of(site.protection)),
      has_core_(std::count(hosts_.begin(), hosts_.end(), host_of(rank)) <= ::sysconf(_SC_NPROCESSORS_ONLN)),
      traffic_(rank, std::move(gathered.connections)) {}

void TcpTransport::set_patient(bool patient) noexcept {
  traffic_.set_patience(!patient    ? p2p::Patience::none
                        : has_core_ ? p2p::Patience::alone
                                    : p2p::Patience::waiting);
}

std::unique_ptr<p2p::Region> TcpTransport::map(void* data, std::size_t) {
  return std::make_unique<p2p::TrafficRegion<TcpTraffic>>(traffic_, data);
}

void TcpTransport::close(bool) noexcept { traffic_.close(); }

p2p::Channels TcpTransport::split(const std::vector<int>& members, const std::string& name,
                                  const Deadline& deadline) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  return make_tcp_channels(site_, static_cast<int>(self - members.begin()), static_cast<int>(members.size()),
                           name, deadline);
}

p2p::Channels make_tcp_channels(const TcpSite& site, int rank, int size, const std::string& name,
                                const Deadline& deadline) {
  const std::string own_counter = fmt::format("tcp/{}/made/{}", name, rank);
  const std::string prefix = fmt::format("tcp/{}/{}", name, site.store->add(own_counter, 1, deadline));
  p2p::Channels channels;
  channels.transport = std::make_unique<TcpTransport>(site, rank, gather(site, rank, size, prefix, deadline));
  channels.board = std::make_unique<StoreBoard>(*site.store, prefix, rank);
  return prefer_shared_memory(std::move(channels), prefix, site.share_memory, deadline);
}

}  // namespace dtrain::tcp
