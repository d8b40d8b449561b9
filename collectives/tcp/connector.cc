#include "collectives/tcp/connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace dtrain::tcp {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr Duration kLastPause = std::chrono::milliseconds(100);
// An attempt whose packets vanish is given up for another.
constexpr Duration kAttemptLimit = std::chrono::seconds(5);

}  // namespace

std::string PeerAddress::text() const {
  return host + '\n' + address + '\n' + nonce + '\n' + std::string(name_of(protection));
}

PeerAddress PeerAddress::parse(const std::string& text) {
  std::array<std::string, 4> lines;
  std::size_t begin = 0;
  for (std::string& line : lines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line = text.substr(std::min(begin, text.size()), end - std::min(begin, end));
    begin = end + 1;
  }
  if (lines[1].empty() || lines[2].empty())
    throw PeerError("expected a rank's address in the store, found '" + text + "'", {});
  return {lines[0], lines[1], lines[2], protection_named(lines[3], "a rank's address in the store")};
}

void Connector::fail(std::string why) {
  last_failure_ = std::move(why);
  fd_.reset();
  initiator_.reset();
  again_ = steady_clock().now() + pause_;
  pause_ = std::min(pause_ * 2, kLastPause);
}

void Connector::ask(std::vector<pollfd>& polled) {
  asked_ = kNone;
  if (done_) return;
  const TimePoint now = steady_clock().now();
  if (fd_ && now >= expires_)
    fail(initiator_ ? "it does not answer; is its process stopped?" : "no answer to the connection");
  if (!fd_ && now >= again_) begin();
  if (!fd_) return;
  asked_ = polled.size();
  polled.push_back({fd_.get(), static_cast<short>(initiator_ ? POLLIN : POLLOUT), 0});
}

Duration Connector::next(TimePoint now) const noexcept {
  if (done_) return Duration::max();
  return std::max(Duration::zero(), (fd_ ? expires_ : again_) - now);
}

void Connector::begin() {
  expires_ = steady_clock().now() + kAttemptLimit;
  fd_.reset(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) return fail(std::strerror(errno));
  try {
    tune_stream(fd_.get());
  } catch (const SystemError& error) {
    return fail(error.what());
  }
  if (::connect(fd_.get(), address_.get(), address_.length()) != 0 && errno != EINPROGRESS)
    fail(std::strerror(errno));
}

bool Connector::send(const std::string& bytes) {
  // A connection that has just been made takes a few hundred bytes at once.
  return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

void Connector::greet() {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(std::strerror(error));
  // While nobody listens, a connection to an ephemeral port of this machine can meet itself.
  if (SocketAddress::of_socket(fd_.get()).text() == address_.text()) return fail("nobody listens there");
  initiator_ = std::make_unique<Initiator>(secret_, purpose_);
  if (!send(initiator_->hello())) fail("the hello could not be sent");
}

void Connector::read() {
  std::array<char, wire::kChallengeBytes> bytes;
  while (initiator_ && initiator_->wants() > 0) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), std::min(bytes.size(), initiator_->wants()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(std::strerror(errno));
    if (got == 0) return fail("it closed the connection; does its process hold another token?");
    std::string out;
    initiator_->feed({bytes.data(), static_cast<std::size_t>(got)}, out);
    if (initiator_->state() == Initiator::State::failed) return fail(std::string(initiator_->reason()));
    if (!out.empty() && !send(out)) return fail("the proof was not taken");
  }
}

std::optional<Connection> Connector::serve(const std::vector<pollfd>& polled) {
  if (asked_ == kNone || polled[asked_].revents == 0) return std::nullopt;
  initiator_ ? read() : greet();
  if (!initiator_ || initiator_->state() != Initiator::State::accepted) return std::nullopt;
  done_ = true;
  return initiator_->connect(std::move(fd_));
}

}  // namespace dtrain::tcp
