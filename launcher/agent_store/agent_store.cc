// One thread around epoll. A client that does not take its replies is not read from until it does.
#include "launcher/agent_store/agent_store.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>
#include <vector>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/check.h"
#include "runtime/base/start_thread.h"

namespace dtrain::launcher {
namespace {

constexpr TorchStore::ClientId kSocket = 0, kPoke = 1, kFirstClient = 2;
constexpr std::size_t kMostClients = 65536;
constexpr std::size_t kChunk = 65536;
// For strangers, and for descriptors where there were none.
constexpr std::chrono::milliseconds kLookAgain{500};

void change(int epoll, int how, int fd, std::uint32_t events, TorchStore::ClientId id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  check(Sys{::epoll_ctl(epoll, how, fd, &event)}, "epoll_ctl in the agent's store");
}

}  // namespace

AgentStore::AgentStore(UniqueFd socket, std::uint16_t port, const TorchStore::Limits& limits)
    : port_(port),
      socket_(std::move(socket)),
      poke_(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd"))),
      epoll_(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1"))),
      store_(limits),
      next_id_(kFirstClient) {
  change(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), EPOLLIN, kSocket);
  change(epoll_.get(), EPOLL_CTL_ADD, poke_.get(), EPOLLIN, kPoke);
  const AllSignalsBlocked blocked;
  thread_ = start_thread("dtrain-store", [this] { run(); });
}

AgentStore::~AgentStore() {
  ends_ = true;
  poke();
  thread_.join();
  while (!connections_.empty()) drop(connections_.begin()->first);
}

void AgentStore::clear() {
  clears_ = true;
  poke();
  // What is stored from here on must stay.
  while (clears_) std::this_thread::yield();
}

void AgentStore::poke() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(poke_.get(), &one, sizeof one));
}

void AgentStore::run() {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int found = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(kLookAgain.count()));
    for (int i = 0; i < found; ++i) {
      const auto& [what, data] = events[static_cast<std::size_t>(i)];
      if (data.u64 == kSocket) {
        take_clients();
      } else if (data.u64 == kPoke) {
        std::uint64_t ignored = 0;
        static_cast<void>(!::read(poke_.get(), &ignored, sizeof ignored));
      } else {
        if ((what & EPOLLOUT) != 0) send_to(data.u64);
        if ((what & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) read_from(data.u64);
      }
      send_replies();
    }
    if (!take_orders()) return;
    if (steady_clock().now() >= next_look_) look_around();
  }
}

// False: the end.
bool AgentStore::take_orders() {
  if (clears_) {
    store_.clear();
    clears_ = false;
  }
  return !ends_;
}

void AgentStore::take_clients() {
  while (true) {
    UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (!fd) return rest();
    if (connections_.size() >= kMostClients) continue;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    const TorchStore::ClientId id = next_id_++;
    change(epoll_.get(), EPOLL_CTL_ADD, fd.get(), EPOLLIN, id);
    connections_.emplace(id, Connection{std::move(fd), EPOLLIN, steady_clock().now()});
    store_.join(id);
  }
}

// Until the next look; the one who waits would be reported again and again.
void AgentStore::rest() {
  change(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), 0, kSocket);
  rests_ = true;
}

// What it is answered, send_replies() sends.
void AgentStore::read_from(TorchStore::ClientId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  std::array<char, kChunk> chunk;
  const ssize_t got = ::recv(found->second.fd.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  try {
    if (got > 0 && store_.feed(id, {chunk.data(), static_cast<std::size_t>(got)})) return;
  } catch (const std::bad_alloc&) {  // it was one too many
  }
  drop(id);
}

// Those of one client may let another go.
void AgentStore::send_replies() {
  for (auto answered = store_.take_answered(); !answered.empty(); answered = store_.take_answered()) {
    for (const TorchStore::ClientId id : answered) send_to(id);
  }
}

void AgentStore::send_to(TorchStore::ClientId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // it was cut off meanwhile
  const std::string_view replies = store_.replies(id);
  const ssize_t sent =
      replies.empty() ? 0 : ::send(found->second.fd.get(), replies.data(), replies.size(), MSG_NOSIGNAL);
  const bool later = sent < 0 && (errno == EAGAIN || errno == EINTR);
  const bool good = sent >= 0 && store_.took(id, static_cast<std::size_t>(sent));
  return good || later ? watch(id) : drop(id);
}

void AgentStore::watch(TorchStore::ClientId id) {
  Connection& connection = connections_.at(id);
  const std::uint32_t events =
      (store_.is_full(id) ? 0U : EPOLLIN) | (store_.replies(id).empty() ? 0U : EPOLLOUT);
  if (events != std::exchange(connection.watched, events))
    change(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), events, id);
}

void AgentStore::drop(TorchStore::ClientId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  ::shutdown(found->second.fd.get(), SHUT_RDWR);  // the subreaper may have a copy
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd.get(), nullptr);
  connections_.erase(found);
  store_.leave(id);
}

// For what nothing reports.
void AgentStore::look_around() {
  const TimePoint now = steady_clock().now();
  next_look_ = now + kLookAgain;
  if (std::exchange(rests_, false)) change(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), EPOLLIN, kSocket);
  std::vector<TorchStore::ClientId> strangers;
  for (const auto& [id, connection] : connections_) {
    if (now - connection.since >= kPatience && !store_.is_known(id)) strangers.push_back(id);
  }
  for (const TorchStore::ClientId id : strangers) drop(id);
}

}  // namespace dtrain::launcher
