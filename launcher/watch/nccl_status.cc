#include "launcher/watch/nccl_status.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "cluster/net/endpoint.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kMaxBytes = 65536;
constexpr std::string_view kQuestion = "verbose status\n";

bool wait_for(int fd, short events, const Deadline& deadline) {
  while (!deadline.expired()) {
    pollfd wait{fd, events, 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) > 0) return true;
  }
  return false;
}

/// Empty when nobody takes the connection.
UniqueFd connect_to(const SocketAddress& address, const Deadline& deadline) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  const bool under_way = ::connect(fd.get(), address.get(), address.length()) != 0;
  if (!under_way) return fd;
  int error = errno;
  socklen_t size = sizeof error;
  if (error == EINPROGRESS && wait_for(fd.get(), POLLOUT, deadline) &&
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
    return fd;
  return {};
}

/// All that comes until the other side closes, the deadline passes or it is too much.
std::string receive_all(int fd, const Deadline& deadline) {
  std::string text;
  std::array<char, 4096> chunk;
  while (text.size() < kMaxBytes && wait_for(fd, POLLIN, deadline)) {
    const ssize_t got = ::recv(fd, chunk.data(), chunk.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string ask(const std::string& address, const Deadline& deadline) {
  for (const SocketAddress& candidate : resolve(parse_endpoint(address, "NCCL_RAS_ADDR"), deadline)) {
    const UniqueFd fd = connect_to(candidate, deadline);
    if (!fd) continue;
    const ssize_t sent = ::send(fd.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(kQuestion.size())) return receive_all(fd.get(), deadline);
  }
  return {};
}

}  // namespace

std::vector<std::string> nccl_status(const std::string& address, const Deadline& deadline) {
  std::vector<std::string> lines;
  try {
    std::istringstream text(ask(address, deadline));
    for (std::string line; std::getline(text, line);) {
      if (!line.empty()) lines.push_back(line);
    }
  } catch (const Error&) {
    return {};  // an address that does not exist: nobody answers there
  }
  return lines;
}

}  // namespace dtrain::launcher
