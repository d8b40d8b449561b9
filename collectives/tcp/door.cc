#include "collectives/tcp/door.h"

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
constexpr Duration kVisit = std::chrono::seconds(5);
constexpr int kAcceptsPerTurn = 64;
constexpr std::size_t kMostStrangers = 256, kLeastStrangers = 8;

// All of the group may be here at once, and beside them strangers with a quarter of the descriptors that this
// process may open.
std::size_t most_visitors(int size) {
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  return static_cast<std::size_t>(size) +
         std::clamp<std::size_t>(limit.rlim_cur / 4, kLeastStrangers, kMostStrangers);
}

std::string text_of_peer(int fd) {
  try {
    return SocketAddress::of_peer(fd).text();
  } catch (const std::exception&) {
    return "somebody who has gone";
  }
}

}  // namespace

Door::Door(const std::string& host, Purpose purpose, int size, const std::optional<Token>& token,
           const Deadline& deadline)
    : purpose_(std::move(purpose)),
      size_(size),
      nonce_(make_token().hex()),
      most_visitors_(most_visitors(size)) {
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

void Door::ask(std::vector<pollfd>& polled) {
  asked_ = kNone;
  if (!listener_) return;
  asked_ = polled.size();
  polled.push_back({listener_.get(), POLLIN, 0});
  for (Visitor& visitor : visitors_) {
    visitor.asked = polled.size();
    polled.push_back({visitor.fd.get(), POLLIN, 0});
  }
}

std::vector<Guest> Door::serve(const std::vector<pollfd>& polled) {
  std::vector<Guest> guests;
  const TimePoint now = steady_clock().now();
  for (Visitor& visitor : visitors_) {
    if (polled[visitor.asked].revents != 0) talk(visitor, guests);
    if (visitor.is_open && visitor.expires <= now) turn_away(visitor, "nothing said in time");
  }
  visitors_.remove_if([](const Visitor& visitor) { return !visitor.is_open; });
  if (asked_ != kNone && polled[asked_].revents != 0) accept_some();
  return guests;
}

void Door::accept_some() {
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

void Door::admit(UniqueFd fd) {
  while (visitors_.size() >= most_visitors_ && evict()) {
  }
  visitors_.push_back(
      {std::move(fd), Host(secret_, purpose_, size_), steady_clock().now() + kVisit, true, kNone, true});
}

// The oldest of those who have not said a word goes first: ranks of ours speak at once.
bool Door::evict() {
  if (visitors_.empty()) return false;
  auto chosen =
      std::find_if(visitors_.begin(), visitors_.end(), [](const Visitor& visitor) { return visitor.silent; });
  if (chosen == visitors_.end()) chosen = visitors_.begin();
  turn_away(*chosen, "room was needed for newer connections");
  visitors_.erase(chosen);
  return true;
}

void Door::turn_away(Visitor& visitor, std::string_view why) {
  ++turned_away_;
  last_turned_away_ = fmt::format("{}: {}", text_of_peer(visitor.fd.get()), why);
  visitor.fd.reset();
  visitor.is_open = false;
}

void Door::talk(Visitor& visitor, std::vector<Guest>& guests) {
  std::array<char, wire::kMaxHelloBytes> bytes;
  const ssize_t got = ::recv(visitor.fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return turn_away(visitor, "the connection was closed half way");
  visitor.silent = false;
  std::string out;
  visitor.host.feed({bytes.data(), static_cast<std::size_t>(got)}, out);
  // What a stranger does not take is not sent twice: a rank of ours takes a hundred bytes at once.
  const bool sent = out.empty() || ::send(visitor.fd.get(), out.data(), out.size(), MSG_NOSIGNAL) ==
                                       static_cast<ssize_t>(out.size());
  if (visitor.host.state() == Host::State::refused) return turn_away(visitor, visitor.host.reason());
  if (!sent) return turn_away(visitor, "the connection was closed half way");
  if (visitor.host.state() != Host::State::accepted) return;
  try {
    tune_stream(visitor.fd.get());
  } catch (const SystemError&) {
    return turn_away(visitor, "the connection was closed half way");
  }
  guests.push_back({visitor.host.from(), visitor.host.connect(std::move(visitor.fd))});
  visitor.is_open = false;
}

void Door::report(Log& log, const std::string& group) const {
  if (turned_away_ == 0) return;
  log.write(LogLevel::warning,
            fmt::format(
                "tcp group '{}': rank {} turned away {} connection{} of strangers on {}; the last was {}",
                group, purpose_.to, turned_away_, turned_away_ == 1 ? "" : "s", address_, last_turned_away_));
}

}  // namespace dtrain::tcp
