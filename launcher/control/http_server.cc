// Keys of the epoll set: small numbers are listeners, then the timer and others' descriptors, then
// connections.
#include "launcher/control/http_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::uint64_t kTimer = 100, kOther = 101, kFirstConnection = 1000;
constexpr int kMostEvents = 64;
const itimerspec kEverySoOften{{0, 500'000'000}, {0, 500'000'000}}, kNever{};

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

HttpServer::HttpServer()
    : epoll_(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1"))),
      timer_(static_cast<int>(
          check(Sys{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)}, "timerfd_create"))),
      next_(kFirstConnection) {
  epoll_event event{EPOLLIN, {.u64 = kTimer}};
  check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event)}, "epoll_ctl");
}

void HttpServer::listen(UniqueFd socket, Audience audience) {
  epoll_event event{EPOLLIN, {.u64 = listeners_.size()}};
  check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event)}, "epoll_ctl");
  listeners_.push_back({std::move(socket), audience});
}

void HttpServer::watch(int other) {
  epoll_event event{EPOLLIN, {.u64 = kOther}};
  check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, other, &event)}, "epoll_ctl");
}

void HttpServer::unwatch(int other) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other, nullptr); }

std::vector<HttpServer::Asked> HttpServer::serve() {
  std::vector<Asked> asked;
  epoll_event events[kMostEvents];
  const int count = ::epoll_wait(epoll_.get(), events, kMostEvents, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t key = events[i].data.u64;
    if (key == kTimer)
      keep_time();
    else if (key < kTimer)
      accept_all(key);
    else if (key >= kFirstConnection && (events[i].events & EPOLLOUT) != 0)
      write(key);
    else if (key >= kFirstConnection)
      read(key, (events[i].events & (EPOLLHUP | EPOLLERR)) != 0, asked);
  }
  return asked;
}

void HttpServer::accept_all(std::size_t listener) {
  Listening& from = listeners_[listener];
  while (true) {
    UniqueFd socket(::accept4(from.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) rest(listener);
      return;
    }
    if (from.connections >= kMostConnections) continue;
    ::timerfd_settime(timer_.get(), 0, &kEverySoOften, nullptr);
    const Id id = next_++;
    epoll_event event{EPOLLIN, {.u64 = id}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) continue;
    ++from.connections;
    const bool stranger = from.audience == Audience::owner && !is_own_user(socket.get());
    Connection& made = connections_[id];
    made.socket = std::move(socket);
    made.listener = listener;
    made.until = steady_clock().now() + kPatience;
    if (stranger) {
      made.asked = true;
      answer(id, {403, "text/plain; charset=utf-8", "expected the user whose job this is, or root\n"});
    }
  }
}

// No descriptor is free for another connection: a socket that stays readable would keep the loop busy.
void HttpServer::rest(std::size_t listener) {
  epoll_event event{0, {.u64 = listener}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[listener].socket.get(), &event);
  rests_ = true;
  ::timerfd_settime(timer_.get(), 0, &kEverySoOften, nullptr);
}

void HttpServer::wake() {
  rests_ = false;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{EPOLLIN, {.u64 = i}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].socket.get(), &event);
  }
}

void HttpServer::read(Id id, bool hung_up, std::vector<Asked>& asked) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  char bytes[4096];
  const ssize_t got = ::recv(connection.socket.get(), bytes, sizeof bytes, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0 || (got == 0 && (!connection.asked || hung_up))) return close(id);
  // It may have shut its side down and wait for the answer; what more it sends is of no interest.
  if (connection.asked) return got == 0 ? expect(id, 0) : void();
  connection.in.append(bytes, static_cast<std::size_t>(got));
  const HttpInput input = read_request(connection.in);
  if (!input.complete) return;
  connection.asked = true;
  if (!input.request) return answer(id, input.refusal);
  connection.head = input.request->method == "HEAD";
  asked.push_back({id, *input.request, listeners_[connection.listener].audience});
}

void HttpServer::answer(Id id, const HttpAnswer& answer) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.answered) return;
  found->second.answered = true;
  found->second.until = steady_clock().now() + kPatience;
  found->second.out = text_of(answer, found->second.head);
  write(id);
}

void HttpServer::write(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  while (connection.sent < connection.out.size()) {
    const ssize_t done = ::send(connection.socket.get(), connection.out.data() + connection.sent,
                                connection.out.size() - connection.sent, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) return expect(id, EPOLLOUT);
    if (done < 0) return close(id);
    connection.sent += static_cast<std::size_t>(done);
  }
  close(id);
}

void HttpServer::expect(Id id, std::uint32_t events) {
  epoll_event event{events, {.u64 = id}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connections_.at(id).socket.get(), &event);
}

void HttpServer::close(Id id) {
  const auto found = connections_.find(id);
  --listeners_[found->second.listener].connections;
  connections_.erase(found);
  if (connections_.empty() && !rests_) ::timerfd_settime(timer_.get(), 0, &kNever, nullptr);
}

// One that has asked and waits for its answer is not to blame for how long that takes.
void HttpServer::keep_time() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
  const TimePoint now = steady_clock().now();
  std::vector<Id> late;
  for (const auto& [id, connection] : connections_) {
    const bool waits = connection.asked && !connection.answered;
    if (!waits && now >= connection.until) late.push_back(id);
  }
  for (const Id id : late) close(id);
  if (rests_) wake();
  if (connections_.empty() && !rests_) ::timerfd_settime(timer_.get(), 0, &kNever, nullptr);
}

}  // namespace dtrain::launcher
