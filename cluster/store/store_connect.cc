// One attempt is: connect, hello, challenge, proof, welcome. Attempts that may yet succeed (nobody listens
// yet, the connection was closed half way) are made again; a wrong token, job or version is final.
#include "cluster/store/store_connect.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "cluster/store/store_handshake.h"
#include "runtime/base/check.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstPause = milliseconds(2);
constexpr Duration kLastPause = milliseconds(100);
// Packets that vanish should not keep an attempt from trying the host's next address.
constexpr Duration kAttemptLimit = std::chrono::seconds(5);

// Why an attempt failed in a way that another one may not.
struct TryAgain {
  std::string why;
};

class Attempt {
 public:
  Attempt(const Endpoint& server, const StoreClientOptions& options, const Deadline& deadline)
      : server_(server), options_(options), deadline_(deadline) {}

  StoreStream run(const SocketAddress& address);

 private:
  void connect(const SocketAddress& address);
  void send(std::string_view bytes);
  std::string_view receive(char* into, std::size_t bytes);
  void wait_for(short events, const Deadline& deadline, std::string_view what);
  void read_welcome(StoreStream& stream);
  [[noreturn]] void fail(std::string_view why) const;

  const Endpoint& server_;
  const StoreClientOptions& options_;
  const Deadline& deadline_;
  UniqueFd fd_;
};

void Attempt::fail(std::string_view why) const {
  throw PeerError(fmt::format("store {}: {}", server_.text(), why),
                  {.host = server_.host, .operation = "store connect", .tensor = {}});
}

void Attempt::wait_for(short events, const Deadline& deadline, std::string_view what) {
  pollfd waited{fd_.get(), events, 0};
  while (true) {
    const int ready = ::poll(&waited, 1, deadline.poll_timeout_ms());
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw SystemError("poll", errno);
    if (deadline.expired()) throw TryAgain{std::string(what)};
  }
}

void Attempt::connect(const SocketAddress& address) {
  fd_.reset(
      static_cast<int>(check(Sys{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)},
                             "socket for the store")));
  tune_stream(fd_.get());
  if (::connect(fd_.get(), address.get(), address.length()) != 0) {
    if (errno != EINPROGRESS) throw TryAgain{std::strerror(errno)};
    wait_for(POLLOUT, Deadline::after(std::min(kAttemptLimit, deadline_.remaining())),
             "no answer to the connection");
    int error = 0;
    socklen_t length = sizeof error;
    check(Sys{::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length)}, "getsockopt SO_ERROR");
    if (error != 0) throw TryAgain{std::strerror(error)};
  }
  // While nobody listens, a connection to an ephemeral port of this machine can meet itself.
  if (SocketAddress::of_socket(fd_.get()).text() == address.text()) throw TryAgain{"nobody listens"};
}

void Attempt::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLOUT, deadline_, "the handshake was not taken");
    } else if (errno != EINTR) {
      throw TryAgain{std::strerror(errno)};
    }
  }
}

// At least one byte, at most `bytes`.
std::string_view Attempt::receive(char* into, std::size_t bytes) {
  while (true) {
    const ssize_t got = ::recv(fd_.get(), into, bytes, 0);
    if (got > 0) return {into, static_cast<std::size_t>(got)};
    if (got == 0) throw TryAgain{"the connection was closed during the handshake"};
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait_for(POLLIN, deadline_,
               "connected, but the server has not answered; is the process that hosts it alive?");
    else if (errno != EINTR)
      throw TryAgain{std::strerror(errno)};
  }
}

void Attempt::read_welcome(StoreStream& stream) {
  char bytes[512];
  std::string_view payload;
  wire::FrameReader::Result result;
  while ((result = stream.reader.next(payload)) == wire::FrameReader::Result::need_more)
    stream.reader.feed(receive(bytes, sizeof bytes));
  if (result == wire::FrameReader::Result::bad) fail(fmt::format("it sent {}", stream.reader.reason()));
  const auto answer = wire::decode_response(payload);
  if (!answer) fail("it sent a malformed welcome");
  if (answer->status != wire::Status::ok) fail("it refused us: " + answer->value);
}

StoreStream Attempt::run(const SocketAddress& address) {
  connect(address);
  const std::string hello =
      wire::make_hello({options_.job, options_.role, options_.rank}, wire::make_nonce());
  send(hello);
  char bytes[wire::kChallengeBytes];
  std::size_t got = 0;
  while (got < sizeof bytes) {
    got += receive(bytes + got, sizeof bytes - got).size();
    if (!wire::could_be_challenge({bytes, got})) break;
  }
  const std::string_view secret = options_.token ? options_.token->bytes() : std::string_view();
  const wire::Answer answer = wire::answer_challenge(secret, hello, {bytes, got});
  if (!answer.error.empty()) fail(answer.error);
  send(answer.proof);
  StoreStream stream{UniqueFd(), SocketAddress::of_socket(fd_.get()),
                     wire::FrameReader(MacKey(answer.keys.to_client.view())),
                     wire::FrameWriter(MacKey(answer.keys.to_server.view()))};
  read_welcome(stream);
  stream.fd = std::move(fd_);
  return stream;
}

void refuse_open_store(const Endpoint& server, const SocketAddress& address,
                       const StoreClientOptions& options) {
  if (options.token || options.insecure || address.is_loopback()) return;
  throw UsageError(
      fmt::format("store {}: expected a token, since {} is not loopback, got none; set DTRAIN_TOKEN or "
                  "DTRAIN_TOKEN_FILE in every "
                  "process, or allow an insecure store on a network where everyone is trusted",
                  server.text(), address.text()));
}

}  // namespace

StoreStream connect_to_store(const Endpoint& server, const StoreClientOptions& options,
                             const Deadline& deadline) {
  const TimePoint start = steady_clock().now();
  const std::vector<SocketAddress> addresses = resolve(server, deadline);
  std::string last = "not tried";
  for (Duration pause = kFirstPause;; pause = std::min(pause * 2, kLastPause)) {
    for (const SocketAddress& address : addresses) {
      refuse_open_store(server, address, options);
      try {
        return Attempt(server, options, deadline).run(address);
      } catch (const TryAgain& failure) {
        last = fmt::format("{}: {}", address.text(), failure.why);
      } catch (const SystemError& failure) {
        // Descriptors or memory that this machine lacks now may be there later; an address family that it
        // does not have leaves the host's next address.
        last = fmt::format("{}: {}", address.text(), failure.what());
      }
      if (deadline.expired()) break;
    }
    if (deadline.expired()) break;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
  const double seconds = std::chrono::duration<double>(steady_clock().now() - start).count();
  throw PeerError(
      fmt::format(
          "store {}: no connection within {:.1f} s; last: {}; check that rank 0 runs there and that the "
          "port is open",
          server.text(), seconds, last),
      {.host = server.host, .operation = "store connect", .tensor = {}});
}

}  // namespace dtrain
