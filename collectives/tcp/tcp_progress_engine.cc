#include "collectives/tcp/tcp_progress_engine.h"

#include <algorithm>

namespace dtrain::tcp {
namespace {

// Several frames a system call, and little enough for them to stay in a core's own cache.
constexpr std::size_t kMostStagingBytes = 4 * net::kMostFrameBytes;
// What all links may stage when all are in use.
constexpr std::size_t kMostBytes = std::size_t{32} << 20;
// Up to this many links are each just tried; with more, the kernel is first asked which can move.
constexpr std::size_t kFewLinks = 2;
// How often a wait that may end at once asks whether all peers are still there.
constexpr std::chrono::milliseconds kCheckEvery{1};

}  // namespace

TcpProgressEngine::TcpProgressEngine(int rank, std::vector<std::optional<net::SecureStream>> connections)
    : rank_(rank) {
  const std::size_t staging = std::min(kMostStagingBytes, kMostBytes / connections.size());
  links_.reserve(connections.size() - 1);
  for (std::size_t peer = 0; peer < connections.size(); ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    links_.emplace_back(static_cast<int>(peer), std::move(connections[peer].value()), staging);
  }
}

void TcpProgressEngine::send(int peer, std::uint64_t tag, const std::byte* data, std::size_t bytes,
                             int& pending) {
  Link& link = link_to(peer);
  const bool alone = !link.sends();
  link.send(tag, data, bytes, pending);
  if (alone) link.flush();
}

void TcpProgressEngine::receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes,
                                int& pending) {
  link_to(peer).expect(tag, data, bytes, pending);
}

void TcpProgressEngine::wait(const int& pending, p2p::Watchdog& watchdog) {
  wait_until([&] { return pending == 0; }, false, watchdog);
}

int TcpProgressEngine::take_any(std::uint64_t tag, p2p::Watchdog& watchdog) {
  int from = -1;
  wait_until([&] { return (from = try_take_any(tag)) >= 0; }, true, watchdog);
  return from;
}

int TcpProgressEngine::try_take_any(std::uint64_t tag) {
  for (std::size_t step = 0; step < links_.size(); ++step) {
    const std::size_t index = (next_any_ + step) % links_.size();
    if (!links_[index].front_has(tag)) continue;
    links_[index].drop_front();
    next_any_ = index + 1;
    return links_[index].rank();
  }
  return -1;
}

bool TcpProgressEngine::has_work() const noexcept {
  return std::ranges::any_of(links_, [](const Link& link) { return link.sends() || link.expects(); });
}

template <class Over>
void TcpProgressEngine::wait_until(Over over, bool anyone, p2p::Watchdog& watchdog) {
  check_peers();
  p2p::Backoff backoff(watchdog, patience_);
  while (!over()) {
    if (progress()) {
      backoff.restart();
      continue;
    }
    backoff.pause([&](Duration) { poll_links(p2p::kTickEvery, anyone); });
  }
}

// A group that has failed elsewhere ends here too, also where all that this rank waits for was sent before.
void TcpProgressEngine::check_peers() {
  const TimePoint now = steady_clock().now();
  if (now - last_check_ < kCheckEvery) return;
  last_check_ = now;
  if (const std::vector<int> lost = lost_peers(); !lost.empty())
    throw p2p::LinkLost("its process is gone or it has closed its connection", lost.front());
}

bool TcpProgressEngine::progress() {
  const bool few = links_.size() <= kFewLinks;
  if (!few) poll_links(Duration::zero(), false);
  bool moved = false;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    const short ready = few ? POLLIN | POLLOUT : polled_[i].revents;
    if (ready == 0 && !link.holds_bytes()) continue;
    moved |= link.sends() && link.flush();
    moved |= link.expects() && link.take();
  }
  return moved;
}

// A link that holds a frame nobody expects yet would say forever that there is something to read.
void TcpProgressEngine::poll_links(Duration limit, bool anyone) {
  polled_.clear();
  for (const Link& link : links_) {
    int events = 0;
    if (link.sends()) events |= POLLOUT;
    if ((link.expects() || anyone) && !link.holds_frame()) events |= POLLIN;
    // A negative descriptor is not looked at.
    polled_.push_back({events == 0 ? -1 : link.fd(), static_cast<short>(events), 0});
  }
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec longest{whole.count(), (limit - whole).count()};
  ::ppoll(polled_.data(), polled_.size(), &longest, nullptr);
}

void TcpProgressEngine::forget(const int& pending) noexcept {
  for (Link& link : links_) link.forget(pending);
}

std::vector<int> TcpProgressEngine::lost_peers() noexcept {
  std::vector<int> lost;
  ended_.clear();
  for (const Link& link : links_) ended_.push_back({link.fd(), POLLRDHUP, 0});
  if (::poll(ended_.data(), ended_.size(), 0) <= 0) return lost;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (ended_[i].revents != 0) lost.push_back(links_[i].rank());
  }
  return lost;
}

void TcpProgressEngine::close() noexcept {
  for (Link& link : links_) link.close();
}

}  // namespace dtrain::tcp
