#include "collectives/tcp/link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "collectives/p2p/transport.h"

namespace dtrain::tcp {

Link::Link(int rank, Connection connection, std::size_t staging_bytes)
    : rank_(rank),
      connection_(std::move(connection)),
      staging_bytes_(std::max(staging_bytes, kMostFrameBytes)) {}

void Link::lose(const std::string& why) const { throw p2p::LinkLost(why, rank_); }

void Link::check_open() const {
  if (!connection_.fd) throw p2p::LinkLost("the group is closed", rank_);
}

void Link::send(std::uint64_t tag, const std::byte* data, std::size_t bytes, int& pending) {
  check_open();
  outgoing_.push_back({tag, data, bytes, &pending});
  ++pending;
}

void Link::expect(std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending) {
  check_open();
  expected_.push_back({tag, data, bytes, &pending});
  ++pending;
}

// The kernel transmits what it has been given while the next frame's MAC is computed here.
bool Link::flush() {
  check_open();
  bool moved = false;
  while (!outgoing_.empty()) {
    Outgoing& message = outgoing_.front();
    if (!sealed_) {
      sealed_ = connection_.sealer.seal(message.tag, {message.data, std::min(message.left, kMostBodyBytes)});
      sealed_sent_ = 0;
    }
    if (!push_sealed(moved)) break;
    const std::size_t bytes = sealed_->body.size();
    sealed_.reset();
    message.data += bytes;
    message.left -= bytes;
    if (message.left > 0) continue;
    --*message.pending;
    outgoing_.pop_front();
  }
  return moved;
}

bool Link::push_sealed(bool& moved) {
  const std::size_t total = sealed_->bytes();
  while (sealed_sent_ < total) {
    iovec pieces[3] = {{sealed_->header.data(), sealed_->header.size()},
                       {const_cast<std::byte*>(sealed_->body.data()), sealed_->body.size()},
                       {sealed_->mac.data(), sealed_->mac_bytes}};
    std::size_t skip = sealed_sent_;
    for (iovec& piece : pieces) {
      const std::size_t gone = std::min(skip, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + gone;
      piece.iov_len -= gone;
      skip -= gone;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 3;
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (sent < 0) lose(fmt::format("sending to it failed: {}", std::strerror(errno)));
    sealed_sent_ += static_cast<std::size_t>(sent);
    moved = true;
  }
  return true;
}

bool Link::take() {
  check_open();
  bool moved = false;
  drained_ = false;
  while (!expected_.empty() && fetch()) {
    const auto message = std::find_if(expected_.begin(), expected_.end(),
                                      [&](const Expected& expected) { return expected.tag == front_->tag; });
    if (message == expected_.end()) break;
    const std::span<const std::byte> body = front_->body;
    if (body.size() > message->left)
      lose(fmt::format("a message of it has {} bytes where at most {} were expected", body.size(),
                       message->left));
    std::memcpy(message->data, body.data(), body.size());
    moved = true;
    message->data += body.size();
    message->left -= body.size();
    drop_front();
    if (message->left > 0) continue;
    --*message->pending;
    expected_.erase(message);
  }
  return moved;
}

bool Link::front_has(std::uint64_t tag) {
  check_open();
  drained_ = false;
  return fetch() && front_->tag == tag;
}

void Link::drop_front() noexcept {
  begin_ += front_->bytes;
  front_.reset();
  if (begin_ == end_) begin_ = end_ = 0;
}

bool Link::fetch() {
  if (front_) return true;
  while (true) {
    Frame frame;
    switch (connection_.opener.open(std::span(staging_).subspan(begin_, end_ - begin_), frame)) {
      case FrameOpener::Result::frame:
        front_ = frame;
        return true;
      case FrameOpener::Result::bad:
        lose(fmt::format("the connection to it brought {}", connection_.opener.reason()));
      case FrameOpener::Result::need_more:
        if (!read()) return false;
    }
  }
}

bool Link::read() {
  if (drained_) return false;
  if (staging_.empty()) staging_.resize(staging_bytes_);
  if (begin_ > 0 && staging_.size() - begin_ < kMostFrameBytes) {
    std::memmove(staging_.data(), staging_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t room = staging_.size() - end_;
  ssize_t got = 0;
  do {
    got = ::recv(fd(), staging_.data() + end_, room, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got == 0) lose("it has closed its connection");
  if (got < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      lose(fmt::format("the connection to it broke: {}", std::strerror(errno)));
    drained_ = true;
    return false;
  }
  drained_ = static_cast<std::size_t>(got) < room;
  end_ += static_cast<std::size_t>(got);
  return true;
}

void Link::forget(const int& pending) noexcept {
  const auto is_its = [&](const auto& message) { return message.pending == &pending; };
  // A frame that was sealed can be neither sent, since its memory may go, nor left out: the peer counts.
  if (sealed_ && is_its(outgoing_.front())) {
    close();
    sealed_.reset();
  }
  std::erase_if(outgoing_, is_its);
  std::erase_if(expected_, is_its);
}

}  // namespace dtrain::tcp
