#include "collectives/tcp/acceptor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "runtime/base/check.h"

namespace dtrain::tcp {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
// Who belongs to us is through within a few round trips.
constexpr Duration kHandshakeTime = std::chrono::seconds(5);
constexpr int kAcceptsPerTurn = 64;
constexpr std::size_t kMostUnauthenticated = 256, kLeastUnauthenticated = 8;

// All of the group may be here at once, and beside them strangers with a quarter of the descriptors that this
// process may open.
std::size_t max_pending(int size) {
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  return static_cast<std::size_t>(size) +
         std::clamp<std::size_t>(limit.rlim_cur / 4, kLeastUnauthenticated, kMostUnauthenticated);
}

std::string text_of_peer(int fd) {
  try {
    return SocketAddress::of_peer(fd).text();
  } catch (const std::exception&) {
    return "a peer that has gone";
  }
}

}  // namespace

Acceptor::Acceptor(const std::string& host, Purpose purpose, int size, const std::optional<Token>& token,
                   const Deadline& deadline)
    : purpose_(std::move(purpose)), size_(size), nonce_(make_token().hex()), max_pending_(max_pending(size)) {
  Listener listener = listen_on(host, 0, deadline);
  if (!token && !listener.address.is_loopback())
    throw UsageError(fmt::format(
        "backend tcp: expected a token, since other machines can reach {}, got none; set DTRAIN_TOKEN or "
        "DTRAIN_TOKEN_FILE in every process",
        listener.address.text()));
  address_ = listener.address.text();
  secret_ = link_secret(token ? token->bytes() : std::string_view(), purpose_.group, nonce_);
  if (purpose_.to + 1 < size) listener_ = std::move(listener.fd);
}

void Acceptor::ask(std::vector<pollfd>& polled) {
  asked_ = kNone;
  if (!listener_) return;
  asked_ = polled.size();
  polled.push_back({listener_.get(), POLLIN, 0});
  for (PendingConnection& pending : pending_) {
    pending.asked = polled.size();
    polled.push_back({pending.fd.get(), POLLIN, 0});
  }
}

std::vector<AcceptedPeer> Acceptor::serve(const std::vector<pollfd>& polled) {
  std::vector<AcceptedPeer> accepted;
  const TimePoint now = steady_clock().now();
  for (PendingConnection& pending : pending_) {
    if (polled[pending.asked].revents != 0) advance(pending, accepted);
    if (pending.is_open && pending.expires <= now) reject(pending, "no handshake in time");
  }
  pending_.remove_if([](const PendingConnection& pending) { return !pending.is_open; });
  if (asked_ != kNone && polled[asked_].revents != 0) accept_some();
  return accepted;
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      admit(std::move(fd));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && !evict()) {
      return;
    }
    // Anything else is one connection that failed before it was accepted.
  }
}

void Acceptor::admit(UniqueFd fd) {
  while (pending_.size() >= max_pending_ && evict()) {
  }
  pending_.push_back({std::move(fd), Responder(secret_, purpose_, size_),
                      steady_clock().now() + kHandshakeTime, true, kNone, true});
}

// The oldest of those who have not said a word goes first: ranks of ours speak at once.
bool Acceptor::evict() {
  if (pending_.empty()) return false;
  auto chosen = std::find_if(pending_.begin(), pending_.end(),
                             [](const PendingConnection& pending) { return pending.silent; });
  if (chosen == pending_.end()) chosen = pending_.begin();
  reject(*chosen, "room was needed for newer connections");
  pending_.erase(chosen);
  return true;
}

void Acceptor::reject(PendingConnection& pending, std::string_view why) {
  ++rejected_;
  last_rejected_ = fmt::format("{}: {}", text_of_peer(pending.fd.get()), why);
  pending.fd.reset();
  pending.is_open = false;
}

void Acceptor::advance(PendingConnection& pending, std::vector<AcceptedPeer>& accepted) {
  std::array<char, wire::kMaxHelloBytes> bytes;
  const ssize_t got = ::recv(pending.fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return reject(pending, "the connection was closed during the handshake");
  pending.silent = false;
  std::string out;
  pending.responder.feed({bytes.data(), static_cast<std::size_t>(got)}, out);
  // What a stranger does not take is not sent twice: a rank of ours takes a hundred bytes at once.
  const bool sent = out.empty() || ::send(pending.fd.get(), out.data(), out.size(), MSG_NOSIGNAL) ==
                                       static_cast<ssize_t>(out.size());
  if (pending.responder.state() == Responder::State::refused)
    return reject(pending, pending.responder.reason());
  if (!sent) return reject(pending, "the connection was closed during the handshake");
  if (pending.responder.state() != Responder::State::accepted) return;
  try {
    tune_stream(pending.fd.get());
  } catch (const SystemError&) {
    return reject(pending, "the connection was closed during the handshake");
  }
  accepted.push_back({pending.responder.from(), pending.responder.connect(std::move(pending.fd))});
  pending.is_open = false;
}

void Acceptor::report(Log& log, const std::string& group) const {
  if (rejected_ == 0) return;
  log.write(
      LogLevel::warning,
      fmt::format("tcp group '{}': rank {} rejected {} unauthenticated connection{} on {}; the last was {}",
                  group, purpose_.to, rejected_, rejected_ == 1 ? "" : "s", address_, last_rejected_));
}

}  // namespace dtrain::tcp
