// Handshake and output of one server-side connection.
#include "cluster/store/store_connection.h"

#include <sys/socket.h>

#include <cerrno>

namespace dtrain {
namespace {

constexpr std::size_t kKeepCapacity = 64 * 1024;

}  // namespace

bool StoreConnection::shake_hands(std::string_view bytes) {
  const std::size_t taken = handshake_->feed(bytes, out_);
  if (handshake_->state() == wire::ServerHandshake::State::refused) {
    reason_ = handshake_->reason();
    return false;
  }
  if (handshake_->state() != wire::ServerHandshake::State::accepted) return true;
  const wire::SessionKeys keys = handshake_->keys();
  reader_.emplace(MacKey(keys.to_server.view()));
  writer_.emplace(MacKey(keys.to_client.view()));
  identity_ = handshake_->identity();
  handshake_.reset();
  reader_->feed(bytes.substr(taken));
  return true;
}

void StoreConnection::note_error(int error) noexcept {
  closed_by_peer = closed_by_peer || error == ECONNRESET || error == EPIPE;
}

bool StoreConnection::flush() noexcept {
  while (sent_ < out_.size()) {
    const ssize_t sent =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      const bool alive = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!alive) note_error(errno);
      if (sent_ > out_.size() / 2) {
        out_.erase(0, sent_);
        sent_ = 0;
      }
      return alive;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  sent_ = 0;
  out_.clear();
  if (out_.capacity() > kKeepCapacity) out_.shrink_to_fit();
  return true;
}

}  // namespace dtrain
