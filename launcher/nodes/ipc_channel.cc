// Messages are cut into packets: a byte that says whether more follows, then bytes.
#include "launcher/nodes/ipc_channel.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace dtrain::launcher {
namespace {

constexpr std::size_t kPacketBytes = 60 * 1024;
constexpr char kLast = 0, kMore = 1;

}  // namespace

void IpcChannel::send(std::string_view message) {
  do {
    const std::string_view part = message.substr(0, kPacketBytes);
    message.remove_prefix(part.size());
    packets_.emplace_back(1, message.empty() ? kLast : kMore).append(part);
  } while (!message.empty());
  flush();
}

bool IpcChannel::flush() {
  while (!packets_.empty()) {
    const std::string& packet = packets_.front();
    const ssize_t sent = ::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    packets_.pop_front();
  }
  return true;
}

// A packet counts as the sender's until it has been read.
bool IpcChannel::unread() const {
  int bytes = 0;
  return unsent() || (::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

IpcChannel::Received IpcChannel::receive(std::string& message) {
  std::vector<char> packet(kPacketBytes + 1);
  while (true) {
    const ssize_t got = ::recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::nothing;
    if (got <= 0) return Received::gone;
    partial_.append(packet.data() + 1, static_cast<std::size_t>(got) - 1);
    if (packet[0] == kMore) continue;
    message = std::exchange(partial_, {});
    return Received::message;
  }
}

}  // namespace dtrain::launcher
