// One loop serves the listening socket and every connection that is not introduced yet; none of them can keep
// another waiting.
#include "collectives/tcp/gathering.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "collectives/tcp/door.h"
#include "collectives/tcp/outbound.h"
#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

// A card that is not there yet is waited for in slices, between which strangers are served.
constexpr std::chrono::milliseconds kCardSlice{20};
// How long the loop sleeps at most.
constexpr std::chrono::milliseconds kLongestTurn{100};

// What the kernel takes of a message before it can be on its way. More would let a rank pass calls that its
// peers never make, and data would leave a core's cache before it is sent.
constexpr int kMostUnsentBytes = 512 * 1024;

// Without it things work as well, with larger buffers.
void limit_unsent(int fd) noexcept {
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes, sizeof kMostUnsentBytes);
}

std::string card_key(const std::string& group, int rank) { return group + "/rank/" + std::to_string(rank); }

PeerError not_connected(const std::string& group, int rank, const std::string& host, const std::string& why) {
  PeerFailure failure;
  failure.rank = rank;
  failure.host = host;
  failure.operation = "connect";
  return PeerError(fmt::format("tcp group '{}': no connection to rank {}{}{}: {}", group, rank,
                               host.empty() ? "" : " on ", host, why),
                   std::move(failure));
}

class Gathering {
 public:
  Gathering(const TcpSite& site, int rank, int size, const std::string& group, const Deadline& deadline)
      : site_(site),
        rank_(rank),
        size_(size),
        group_(group),
        deadline_(deadline),
        door_(site.listening_host, {group, 0, rank, site.protection}, size, site.token, deadline) {
    gathered_.connections.resize(static_cast<std::size_t>(size));
    gathered_.hosts.resize(static_cast<std::size_t>(size));
    gathered_.hosts[static_cast<std::size_t>(rank)] = site.host;
  }

  Gathered run() {
    site_.store->set(card_key(group_, rank_),
                     Card{site_.host, door_.address(), door_.nonce(), site_.protection}.text(), deadline_);
    while (missing() > 0) {
      if (deadline_.expired()) give_up();
      turn();
    }
    door_.report(*site_.log, group_);
    for (int peer = rank_ + 1; peer < size_; ++peer)
      host_of(peer) = Card::parse(site_.store->get(card_key(group_, peer), deadline_)).host;
    return std::move(gathered_);
  }

 private:
  std::string& host_of(int rank) { return gathered_.hosts[static_cast<std::size_t>(rank)]; }
  std::optional<Connection>& connection_to(int rank) {
    return gathered_.connections[static_cast<std::size_t>(rank)];
  }
  long missing() const {
    return size_ - 1 -
           std::count_if(gathered_.connections.begin(), gathered_.connections.end(),
                         [](const auto& connection) { return connection.has_value(); });
  }

  void turn() {
    if (static_cast<int>(outbound_.size()) < rank_) look_for_card(static_cast<int>(outbound_.size()));
    const bool cards_missing = static_cast<int>(outbound_.size()) < rank_;
    polled_.clear();
    door_.ask(polled_);
    for (Outbound& outbound : outbound_) outbound.ask(polled_);
    Duration sleep =
        cards_missing ? Duration::zero() : std::min<Duration>(kLongestTurn, deadline_.remaining());
    const TimePoint now = steady_clock().now();
    for (const Outbound& outbound : outbound_) sleep = std::min(sleep, outbound.next(now));
    ::poll(polled_.data(), polled_.size(), Deadline::after(sleep).poll_timeout_ms());
    for (Guest& guest : door_.serve(polled_)) settle(guest.from, std::move(guest.connection));
    for (Outbound& outbound : outbound_) {
      if (auto connection = outbound.serve(polled_)) settle(outbound.peer(), std::move(*connection));
    }
  }

  void settle(int peer, Connection connection) {
    limit_unsent(connection.fd.get());
    connection_to(peer) = std::move(connection);
  }

  void look_for_card(int peer) {
    const TimePoint start = steady_clock().now();
    const Duration slice = std::min<Duration>(kCardSlice, deadline_.remaining());
    std::string text;
    try {
      text = site_.store->get(card_key(group_, peer), Deadline::after(slice));
    } catch (const PeerError& error) {
      if (deadline_.expired() || steady_clock().now() - start < slice)
        throw not_connected(group_, peer, "", std::string("it has not come: ") + error.what());
      return;
    }
    const Card card = Card::parse(text);
    host_of(peer) = card.host;
    if (card.protection != site_.protection)
      throw UsageError(fmt::format(
          "tcp group '{}': rank {} on {} protects its messages by '{}', rank {} on {} by '{}'; set "
          "DTRAIN_TCP_PROTECTION to the same on every node",
          group_, peer, card.host, name_of(card.protection), rank_, site_.host, name_of(site_.protection)));
    const std::string_view token = site_.token ? site_.token->bytes() : std::string_view();
    outbound_.emplace_back(Purpose{group_, rank_, peer, site_.protection},
                           link_secret(token, group_, card.nonce),
                           resolve(parse_endpoint(card.address, "a rank's card"), deadline_).front());
  }

  [[noreturn]] void give_up() {
    door_.report(*site_.log, group_);
    for (const Outbound& outbound : outbound_) {
      if (!connection_to(outbound.peer()))
        throw not_connected(group_, outbound.peer(), host_of(outbound.peer()), outbound.last_failure());
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || connection_to(peer)) continue;
      const auto card =
          site_.store->try_get(card_key(group_, peer), Deadline::after(std::chrono::seconds(1)));
      if (card) throw not_connected(group_, peer, Card::parse(*card).host, "it has not connected");
      throw not_connected(group_, peer, "", "it has not come");
    }
    throw not_connected(group_, -1, "", "out of time");
  }

  const TcpSite& site_;
  const int rank_, size_;
  const std::string& group_;
  const Deadline& deadline_;
  Gathered gathered_;
  Door door_;
  std::vector<Outbound> outbound_;  ///< to ranks 0, 1, … whose cards have been seen
  std::vector<pollfd> polled_;
};

}  // namespace

Gathered gather(const TcpSite& site, int rank, int size, const std::string& group, const Deadline& deadline) {
  return Gathering(site, rank, size, group, deadline).run();
}

}  // namespace dtrain::tcp
