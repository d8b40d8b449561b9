// One loop serves the listening socket and every connection whose handshake is not finished; none of them can
// keep another waiting.
#include "collectives/tcp/wire_up.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "collectives/tcp/acceptor.h"
#include "collectives/tcp/connector.h"
#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

// An address that is not there yet is waited for in slices, between which other connections are served.
constexpr std::chrono::milliseconds kLookUpSlice{20};
// How long the loop sleeps at most.
constexpr std::chrono::milliseconds kLongestTurn{100};

// What the kernel takes of a message before it can be on its way. More would let a rank pass calls that its
// peers never make, and data would leave a core's cache before it is sent.
constexpr int kMostUnsentBytes = 512 * 1024;

// Without it things work as well, with larger buffers.
void limit_unsent(int fd) noexcept {
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes, sizeof kMostUnsentBytes);
}

std::string address_key(const std::string& group, int rank) {
  return group + "/rank/" + std::to_string(rank);
}

PeerError not_connected(const std::string& group, int rank, const std::string& host, const std::string& why) {
  PeerFailure failure;
  failure.rank = rank;
  failure.host = host;
  failure.operation = "connect";
  return PeerError(fmt::format("tcp group '{}': no connection to rank {}{}{}: {}", group, rank,
                               host.empty() ? "" : " on ", host, why),
                   std::move(failure));
}

class WireUp {
 public:
  WireUp(const TcpSite& site, int rank, int size, const std::string& group, const Deadline& deadline)
      : site_(site),
        rank_(rank),
        size_(size),
        group_(group),
        deadline_(deadline),
        acceptor_(site.listening_host, {group, 0, rank, site.protection}, size, site.token, deadline) {
    result_.connections.resize(static_cast<std::size_t>(size));
    result_.hosts.resize(static_cast<std::size_t>(size));
    result_.hosts[static_cast<std::size_t>(rank)] = site.host;
  }

  PeerConnections run() {
    site_.store->set(address_key(group_, rank_),
                     PeerAddress{site_.host, acceptor_.address(), acceptor_.nonce(), site_.protection}.text(),
                     deadline_);
    while (missing() > 0) {
      if (deadline_.expired()) give_up();
      turn();
    }
    acceptor_.report(*site_.log, group_);
    for (int peer = rank_ + 1; peer < size_; ++peer)
      host_of(peer) = PeerAddress::parse(site_.store->get(address_key(group_, peer), deadline_)).host;
    return std::move(result_);
  }

 private:
  std::string& host_of(int rank) { return result_.hosts[static_cast<std::size_t>(rank)]; }
  std::optional<Connection>& connection_to(int rank) {
    return result_.connections[static_cast<std::size_t>(rank)];
  }
  long missing() const {
    return size_ - 1 -
           std::count_if(result_.connections.begin(), result_.connections.end(),
                         [](const auto& connection) { return connection.has_value(); });
  }

  void turn() {
    if (static_cast<int>(connectors_.size()) < rank_) look_up(static_cast<int>(connectors_.size()));
    const bool addresses_missing = static_cast<int>(connectors_.size()) < rank_;
    polled_.clear();
    acceptor_.ask(polled_);
    for (Connector& connector : connectors_) connector.ask(polled_);
    Duration sleep =
        addresses_missing ? Duration::zero() : std::min<Duration>(kLongestTurn, deadline_.remaining());
    const TimePoint now = steady_clock().now();
    for (const Connector& connector : connectors_) sleep = std::min(sleep, connector.next(now));
    ::poll(polled_.data(), polled_.size(), Deadline::after(sleep).poll_timeout_ms());
    for (AcceptedPeer& peer : acceptor_.serve(polled_)) settle(peer.from, std::move(peer.connection));
    for (Connector& connector : connectors_) {
      if (auto connection = connector.serve(polled_)) settle(connector.peer(), std::move(*connection));
    }
  }

  void settle(int peer, Connection connection) {
    limit_unsent(connection.fd.get());
    connection_to(peer) = std::move(connection);
  }

  void look_up(int peer) {
    const TimePoint start = steady_clock().now();
    const Duration slice = std::min<Duration>(kLookUpSlice, deadline_.remaining());
    std::string text;
    try {
      text = site_.store->get(address_key(group_, peer), Deadline::after(slice));
    } catch (const PeerError& error) {
      if (deadline_.expired() || steady_clock().now() - start < slice)
        throw not_connected(group_, peer, "", std::string("it has not joined: ") + error.what());
      return;
    }
    const PeerAddress found = PeerAddress::parse(text);
    host_of(peer) = found.host;
    if (found.protection != site_.protection)
      throw UsageError(fmt::format(
          "tcp group '{}': rank {} on {} protects its messages by '{}', rank {} on {} by '{}'; set "
          "DTRAIN_TCP_PROTECTION to the same on every node",
          group_, peer, found.host, name_of(found.protection), rank_, site_.host, name_of(site_.protection)));
    const std::string_view token = site_.token ? site_.token->bytes() : std::string_view();
    connectors_.emplace_back(Purpose{group_, rank_, peer, site_.protection},
                             link_secret(token, group_, found.nonce),
                             resolve(parse_endpoint(found.address, "a rank's address"), deadline_).front());
  }

  [[noreturn]] void give_up() {
    acceptor_.report(*site_.log, group_);
    for (const Connector& connector : connectors_) {
      if (!connection_to(connector.peer()))
        throw not_connected(group_, connector.peer(), host_of(connector.peer()), connector.last_failure());
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || connection_to(peer)) continue;
      const auto found =
          site_.store->try_get(address_key(group_, peer), Deadline::after(std::chrono::seconds(1)));
      if (found) throw not_connected(group_, peer, PeerAddress::parse(*found).host, "it has not connected");
      throw not_connected(group_, peer, "", "it has not joined");
    }
    throw not_connected(group_, -1, "", "out of time");
  }

  const TcpSite& site_;
  const int rank_, size_;
  const std::string& group_;
  const Deadline& deadline_;
  PeerConnections result_;
  Acceptor acceptor_;
  std::vector<Connector> connectors_;  ///< to ranks 0, 1, … whose addresses are known
  std::vector<pollfd> polled_;
};

}  // namespace

PeerConnections wire_up(const TcpSite& site, int rank, int size, const std::string& group,
                        const Deadline& deadline) {
  return WireUp(site, rank, size, group, deadline).run();
}

}  // namespace dtrain::tcp
