// The messages under way between this rank and all others, and the one loop that moves them.
#pragma once

#include <poll.h>

#include <vector>

#include "collectives/p2p/backoff.h"
#include "collectives/p2p/transport.h"
#include "collectives/tcp/link.h"

namespace dtrain::tcp {

/// Used by one thread at a time. `pending` is as for a Link.
class TcpProgressEngine final : public p2p::PolledMessages {
 public:
  /// `connections` by rank; none to this rank itself.
  TcpProgressEngine(int rank, std::vector<std::optional<net::SecureStream>> connections);

  void set_patience(p2p::Patience patience) noexcept { patience_ = patience; }

  void send(int peer, std::uint64_t tag, const std::byte* data, std::size_t bytes, int& pending) override;
  void receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending) override;
  /// As Transport::take_any.
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog);
  /// Blocks until `pending` is 0. Throws what `watchdog` throws, and LinkLost.
  void wait(const int& pending, p2p::Watchdog& watchdog);
  void forget(const int& pending) noexcept override;
  bool has_work() const noexcept override;
  bool progress() override;
  void check_peers() override;
  int try_take_any(std::uint64_t tag) override;
  void sleep(Duration longest, bool anyone) override { poll_links(longest, anyone); }
  /// Ranks whose end of the connection is closed or broken.
  std::vector<int> lost_peers() noexcept;
  /// Pending and later messages fail, here and at the peers.
  void close() noexcept;

 private:
  Link& link_to(int rank) noexcept {
    return links_[static_cast<std::size_t>(rank < rank_ ? rank : rank - 1)];
  }
  /// Looks on until `over()`. `anyone`: what it looks for may come from any rank.
  template <class Over>
  void wait_until(Over over, bool anyone, p2p::Watchdog& watchdog);
  /// Asks the kernel which links can move, for at most `limit`.
  void poll_links(Duration limit, bool anyone);

  const int rank_;
  std::vector<Link> links_;             ///< all but this rank
  std::vector<pollfd> polled_, ended_;  ///< by link
  p2p::Patience patience_ = p2p::Patience::none;
  TimePoint last_check_{};
  std::size_t next_any_ = 0;  ///< index of the link at which take_any() looks first
};

}  // namespace dtrain::tcp
