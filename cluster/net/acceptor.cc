// The listening socket and all that has not authenticated yet are in an epoll of their own, which is itself
// something to poll: so the same code serves under any loop.
#include "cluster/net/acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "runtime/base/check.h"

namespace dtrain::net {
namespace {

constexpr std::uint64_t kListenerId = 0, kFirstId = 1;
constexpr int kEventsPerTurn = 256, kAcceptsPerTurn = 64;
constexpr std::size_t kLeastPending = 8;
constexpr std::chrono::milliseconds kAcceptPause{100};

// A quarter of the descriptors that this process may open.
std::size_t affordable_strangers() {
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  return std::max<std::size_t>(kLeastPending, limit.rlim_cur / 4);
}

std::string text_of_peer(int fd) {
  try {
    return SocketAddress::of_peer(fd).text();
  } catch (const std::exception&) {
    return "a peer that has gone";
  }
}

}  // namespace

Acceptor::Acceptor(Listener listener, std::string_view secret, Protection protection, Admit admit,
                   AcceptorLimits limits)
    : listener_(std::move(listener)),
      key_(secret),
      protection_(protection),
      admit_(std::move(admit)),
      limits_(limits),
      epoll_(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1"))),
      next_id_(kFirstId) {
  limits_.max_pending = std::min(limits_.max_pending, affordable_strangers()) + limits_.expected;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.fd.get(), &event)}, "epoll_ctl listener");
}

void Acceptor::close() noexcept {
  silent_.clear();
  talking_.clear();
  accepting_again_.reset();
  listener_.fd.reset();
}

std::optional<TimePoint> Acceptor::due() const noexcept {
  std::optional<TimePoint> first = accepting_again_;
  for (const auto* pending : {&silent_, &talking_}) {
    if (pending->empty()) continue;
    const TimePoint expires = pending->begin()->second.expires;
    first = first ? std::min(*first, expires) : expires;
  }
  return first;
}

std::vector<AcceptedPeer> Acceptor::serve() {
  std::vector<AcceptedPeer> accepted;
  std::array<epoll_event, kEventsPerTurn> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, 0);
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    id == kListenerId ? accept_some() : advance(id, accepted);
  }
  expire();
  return accepted;
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      if (!admit(std::move(fd))) return;
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The kernel says so even when nobody waits to be accepted.
      if (!someone_knocks()) return;
      // Those who came a moment ago are left the time to say hello, or newcomers would drive each other out.
      if (evict(kAcceptPause)) continue;
      return pause_accepting();
    }
    // Anything else is one connection that failed before it was accepted.
  }
}

bool Acceptor::admit(UniqueFd fd) {
  count(&AcceptorCounts::accepted);
  while (silent_.size() + talking_.size() >= limits_.max_pending && evict(Duration::zero())) {
  }
  const std::uint64_t id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return false;
  silent_.emplace(id, PendingConnection{std::move(fd), Responder(key_, protection_, admit_),
                                        steady_clock().now() + limits_.handshake_timeout});
  return true;
}

bool Acceptor::someone_knocks() const {
  pollfd waited{listener_.fd.get(), POLLIN, 0};
  return ::poll(&waited, 1, 0) > 0;
}

// The oldest of those who have not said a word goes first: who belongs here speaks at once.
bool Acceptor::evict(Duration least_age) {
  const TimePoint latest = steady_clock().now() + limits_.handshake_timeout - least_age;
  for (PendingConnections* pending : {&silent_, &talking_}) {
    if (pending->empty() || pending->begin()->second.expires > latest) continue;
    reject(*pending, pending->begin(), "room was needed for newer connections", &AcceptorCounts::evicted);
    return true;
  }
  return false;
}

void Acceptor::watch_listener(bool watched) {
  epoll_event event{};
  event.events = watched ? std::uint32_t{EPOLLIN} : 0;
  event.data.u64 = kListenerId;
  check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.fd.get(), &event)}, "epoll_ctl listener");
}

// Without descriptors and without strangers to close there is nothing to do but wait; the listener would wake
// us forever.
void Acceptor::pause_accepting() {
  watch_listener(false);
  accepting_again_ = steady_clock().now() + kAcceptPause;
}

void Acceptor::expire() {
  const TimePoint now = steady_clock().now();
  for (PendingConnections* pending : {&silent_, &talking_}) {
    while (!pending->empty() && pending->begin()->second.expires <= now)
      reject(*pending, pending->begin(), "no handshake in time", &AcceptorCounts::timed_out);
  }
  if (!accepting_again_ || *accepting_again_ > now) return;
  accepting_again_.reset();
  watch_listener(true);
}

void Acceptor::reject(PendingConnections& all, PendingConnections::iterator one, std::string_view why,
                      std::uint64_t AcceptorCounts::*as) {
  count(as);
  last_rejected_ = fmt::format("{}: {}", text_of_peer(one->second.fd.get()), why);
  all.erase(one);
}

void Acceptor::advance(std::uint64_t id, std::vector<AcceptedPeer>& accepted) {
  if (auto node = silent_.extract(id)) talking_.insert(std::move(node));
  const auto one = talking_.find(id);
  if (one == talking_.end()) return;  // an earlier event of this turn has closed it
  const auto lose = [&] {
    reject(talking_, one, "the connection was closed during the handshake", &AcceptorCounts::gone);
  };
  auto& [fd, responder, expires] = one->second;
  std::array<char, kMaxHelloBytes> bytes;
  const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return lose();
  std::string out;
  responder.feed({bytes.data(), static_cast<std::size_t>(got)}, out);
  // What a stranger does not take is not sent twice: who belongs here takes a few hundred bytes at once.
  const bool sent = out.empty() || ::send(fd.get(), out.data(), out.size(), MSG_NOSIGNAL) ==
                                       static_cast<ssize_t>(out.size());
  if (responder.state() == Responder::State::refused)
    return reject(talking_, one, responder.reason(), &AcceptorCounts::refused);
  if (!sent) return lose();
  if (responder.state() != Responder::State::accepted) return;
  try {
    tune_stream(fd.get());  // only now: strangers should cost as little as can be
  } catch (const SystemError&) {
    return lose();
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
  accepted.push_back({responder.identity(), responder.stream(std::move(fd))});
  count(&AcceptorCounts::authenticated);
  talking_.erase(one);
}

void Acceptor::count(std::uint64_t AcceptorCounts::*field) noexcept {
  std::atomic_ref(counts_.*field).fetch_add(1, std::memory_order_relaxed);
}

AcceptorCounts Acceptor::counts() const noexcept {
  const auto load = [](std::uint64_t& count) {
    return std::atomic_ref(count).load(std::memory_order_relaxed);
  };
  return {load(counts_.accepted),  load(counts_.authenticated), load(counts_.refused),
          load(counts_.timed_out), load(counts_.evicted),       load(counts_.gone)};
}

std::string Acceptor::rejections() const {
  const std::uint64_t rejected = counts().rejected();
  if (rejected == 0) return {};
  return fmt::format("rejected {} unauthenticated connection{} on {}; the last was {}", rejected,
                     rejected == 1 ? "" : "s", listener_.address.text(), last_rejected_);
}

}  // namespace dtrain::net
