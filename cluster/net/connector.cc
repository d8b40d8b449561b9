#include "cluster/net/connector.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace dtrain::net {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr Duration kLastPause = std::chrono::milliseconds(100);
// Packets that vanish should not keep an attempt from trying the next address. Once there is a connection,
// TCP knows when it is over: a stopped process may still answer.
constexpr Duration kConnectLimit = std::chrono::seconds(5);
constexpr Duration kLongestTurn = std::chrono::seconds(10);

}  // namespace

Connector::Connector(std::vector<SocketAddress> addresses, std::string_view secret, Identity identity)
    : addresses_(std::move(addresses)), secret_(secret), identity_(std::move(identity)) {
  static_cast<void>(Initiator(secret_, identity_, Nonce{}));
}

void Connector::fail(std::string why) {
  last_failure_ = fmt::format("{}: {}", address().text(), why);
  fd_.reset();
  initiator_.reset();
  again_ = steady_clock().now();
  if (++address_ < addresses_.size()) return;
  address_ = 0;
  again_ += pause_;
  pause_ = std::min(pause_ * 2, kLastPause);
}

std::string Connector::why() const {
  if (!initiator_) return last_failure_;
  return fmt::format("{}: connected, but it has not answered; is the process that listens there stopped?",
                     address().text());
}

void Connector::ask(std::vector<pollfd>& polled) {
  asked_ = kNone;
  if (done_) return;
  const TimePoint now = steady_clock().now();
  if (fd_ && !initiator_ && now >= expires_) fail("no answer to the connection");
  if (!fd_ && now >= again_) begin();
  if (!fd_) return;
  asked_ = polled.size();
  polled.push_back({fd_.get(), static_cast<short>(initiator_ ? POLLIN : POLLOUT), 0});
}

Duration Connector::next(TimePoint now) const noexcept {
  if (done_ || initiator_) return kLongestTurn;
  return std::clamp((fd_ ? expires_ : again_) - now, Duration::zero(), kLongestTurn);
}

void Connector::begin() {
  expires_ = steady_clock().now() + kConnectLimit;
  // Descriptors or memory that this machine lacks now may be there later; an address family that it does not
  // have leaves the next address.
  fd_.reset(::socket(address().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) return fail(std::strerror(errno));
  try {
    tune_stream(fd_.get());
  } catch (const SystemError& error) {
    return fail(error.what());
  }
  if (::connect(fd_.get(), address().get(), address().length()) != 0 && errno != EINPROGRESS)
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
  if (SocketAddress::of_socket(fd_.get()).text() == address().text()) return fail("nobody listens there");
  initiator_ = std::make_unique<Initiator>(secret_, identity_);
  if (!send(initiator_->hello())) fail("the hello could not be sent");
}

void Connector::read() {
  std::array<char, kMaxReasonBytes> bytes;
  while (initiator_->wants() > 0) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), std::min(bytes.size(), initiator_->wants()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(std::strerror(errno));
    if (got == 0) return fail("it closed the connection during the handshake");
    std::string out;
    initiator_->feed({bytes.data(), static_cast<std::size_t>(got)}, out);
    if (initiator_->state() == Initiator::State::failed) {
      refusal_ = initiator_->reason();
      return fail(refusal_);
    }
    if (!out.empty() && !send(out)) return fail("the proof was not accepted");
  }
}

std::optional<SecureStream> Connector::serve(const std::vector<pollfd>& polled) {
  if (asked_ == kNone || polled[asked_].revents == 0) return std::nullopt;
  initiator_ ? read() : greet();
  if (!initiator_ || initiator_->state() != Initiator::State::accepted) return std::nullopt;
  done_ = true;
  return initiator_->stream(std::move(fd_));
}

std::optional<SecureStream> Connector::run(const Deadline& deadline) {
  std::vector<pollfd> polled;
  while (true) {
    polled.clear();
    ask(polled);
    const Duration wait = std::min(next(steady_clock().now()), deadline.remaining());
    ::poll(polled.data(), polled.size(), Deadline::after(wait).poll_timeout_ms());
    if (auto stream = serve(polled)) return stream;
    if (!refusal_.empty() || deadline.expired()) return std::nullopt;
  }
}

}  // namespace dtrain::net
