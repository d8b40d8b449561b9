// One loop serves the listening socket and every connection whose handshake is not finished; none of them can
// keep another waiting.
#include "collectives/tcp/wire_up.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "collectives/tcp/peer_address.h"
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
  WireUp(const TcpContext& shared, int rank, int size, const std::string& group, const Deadline& deadline)
      : shared_(shared),
        rank_(rank),
        size_(size),
        group_(group),
        deadline_(deadline),
        listening_(shared.listening_host, shared.host, purpose_to(rank), shared.token, deadline) {
    if (rank + 1 == size) listening_.acceptor.close();  // nobody connects to the last one
    result_.connections.resize(static_cast<std::size_t>(size));
    result_.hosts.resize(static_cast<std::size_t>(size));
    result_.hosts[static_cast<std::size_t>(rank)] = shared.host;
  }

  PeerConnections run() {
    shared_.store->set(address_key(group_, rank_), listening_.address.text(), deadline_);
    while (missing() > 0) {
      if (deadline_.expired()) give_up();
      turn();
    }
    report_rejections();
    for (int peer = rank_ + 1; peer < size_; ++peer)
      host_of(peer) = PeerAddress::parse(shared_.store->get(address_key(group_, peer), deadline_)).host;
    return std::move(result_);
  }

 private:
  std::string& host_of(int rank) { return result_.hosts[static_cast<std::size_t>(rank)]; }
  Purpose purpose_to(int rank) const { return {group_, rank, size_, shared_.protection}; }
  std::optional<net::SecureStream>& connection_to(int rank) {
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
    polled_.assign({{listening_.acceptor.fd(), POLLIN, 0}});
    for (net::Connector& connector : connectors_) connector.ask(polled_);
    Duration sleep =
        addresses_missing ? Duration::zero() : std::min<Duration>(kLongestTurn, deadline_.remaining());
    const TimePoint now = steady_clock().now();
    for (const net::Connector& connector : connectors_) sleep = std::min(sleep, connector.next(now));
    ::poll(polled_.data(), polled_.size(), Deadline::after(sleep).poll_timeout_ms());
    for (net::AcceptedPeer& peer : listening_.acceptor.serve())
      settle(peer.identity.rank, std::move(peer.stream));
    for (std::size_t peer = 0; peer < connectors_.size(); ++peer) {
      if (auto stream = connectors_[peer].serve(polled_)) settle(static_cast<int>(peer), std::move(*stream));
    }
  }

  void settle(int peer, net::SecureStream stream) {
    limit_unsent(stream.fd());
    connection_to(peer).emplace(std::move(stream));
  }

  void report_rejections() const {
    if (const std::string rejected = listening_.acceptor.rejections(); !rejected.empty())
      shared_.log->write(LogLevel::warning,
                         fmt::format("tcp group '{}': rank {} {}", group_, rank_, rejected));
  }

  void look_up(int peer) {
    const TimePoint start = steady_clock().now();
    const Duration slice = std::min<Duration>(kLookUpSlice, deadline_.remaining());
    std::string text;
    try {
      text = shared_.store->get(address_key(group_, peer), Deadline::after(slice));
    } catch (const PeerError& error) {
      if (deadline_.expired() || steady_clock().now() - start < slice)
        throw not_connected(group_, peer, "", std::string("it has not joined: ") + error.what());
      return;
    }
    const PeerAddress found = PeerAddress::parse(text);
    host_of(peer) = found.host;
    if (found.protection != shared_.protection)
      throw UsageError(fmt::format(
          "tcp group '{}': rank {} on {} protects its messages by '{}', rank {} on {} by '{}'; set "
          "DTRAIN_TCP_PROTECTION to the same on every node",
          group_, peer, found.host, name_of(found.protection), rank_, shared_.host,
          name_of(shared_.protection)));
    connectors_.push_back(connector_to(found, rank_, purpose_to(peer), shared_.token, deadline_));
  }

  [[noreturn]] void give_up() {
    report_rejections();
    for (std::size_t peer = 0; peer < connectors_.size(); ++peer) {
      const int rank = static_cast<int>(peer);
      if (!connection_to(rank)) throw not_connected(group_, rank, host_of(rank), connectors_[peer].why());
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || connection_to(peer)) continue;
      const auto found =
          shared_.store->try_get(address_key(group_, peer), Deadline::after(std::chrono::seconds(1)));
      if (found) throw not_connected(group_, peer, PeerAddress::parse(*found).host, "it has not connected");
      throw not_connected(group_, peer, "", "it has not joined");
    }
    throw not_connected(group_, -1, "", "out of time");
  }

  const TcpContext& shared_;
  const int rank_, size_;
  const std::string& group_;
  const Deadline& deadline_;
  PeerConnections result_;
  ListeningRank listening_;
  std::vector<net::Connector> connectors_;  ///< to ranks 0, 1, … whose addresses are known
  std::vector<pollfd> polled_;
};

}  // namespace

PeerConnections wire_up(const TcpContext& shared, int rank, int size, const std::string& group,
                        const Deadline& deadline) {
  return WireUp(shared, rank, size, group, deadline).run();
}

}  // namespace dtrain::tcp
