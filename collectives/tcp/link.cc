#include "collectives/tcp/link.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <string>

#include "collectives/p2p/transport.h"

namespace dtrain::tcp {

Link::Link(int rank, net::SecureStream stream, std::size_t staging_bytes)
    : rank_(rank), stream_(std::move(stream)) {
  stream_.stage(staging_bytes);
}

void Link::lose(const std::string& why) const { throw p2p::LinkLost(why, rank_); }

void Link::check_open() const {
  if (!stream_.is_open()) throw p2p::LinkLost("the group is closed", rank_);
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
      sealed_ = stream_.seal(message.tag, {message.data, std::min(message.left, net::kMostBodyBytes)});
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
    const std::size_t sent = stream_.send(pieces);
    if (stream_.end() != net::SecureStream::End::none) lose(stream_.why());
    if (sent == 0) return false;
    sealed_sent_ += sent;
    moved = true;
  }
  return true;
}

bool Link::take() {
  check_open();
  bool moved = false;
  drained_ = false;
  while (!expected_.empty()) {
    const net::Frame* frame = fetch();
    if (frame == nullptr) break;
    const auto message = std::find_if(expected_.begin(), expected_.end(),
                                      [&](const Expected& expected) { return expected.tag == frame->tag; });
    if (message == expected_.end()) break;
    const std::span<const std::byte> body = frame->body;
    if (body.size() > message->left)
      lose(fmt::format("it sent a message of {} bytes where at most {} were expected", body.size(),
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
  const net::Frame* frame = fetch();
  return frame != nullptr && frame->tag == tag;
}

const net::Frame* Link::fetch() {
  while (true) {
    if (const net::Frame* frame = stream_.front()) return frame;
    const bool came = !drained_ && stream_.end() == net::SecureStream::End::none && stream_.receive();
    if (stream_.end() != net::SecureStream::End::none) lose(stream_.why());
    if (!came) return nullptr;
    drained_ = stream_.drained();
  }
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
