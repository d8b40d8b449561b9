#include "cluster/net/secure_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrain::net {
namespace {

// Most connections of a store never need more: a server may have tens of thousands of them.
constexpr std::size_t kFirstStaging = 1024;

SecureStream::End end_of(int error) noexcept {
  return error == ECONNRESET || error == EPIPE ? SecureStream::End::reset : SecureStream::End::failed;
}

}  // namespace

SecureStream::SecureStream(UniqueFd fd, FrameSealer sealer, FrameOpener opener, std::size_t staging_bytes)
    : fd_(std::move(fd)), sealer_(std::move(sealer)), opener_(std::move(opener)) {
  stage(staging_bytes);
}

void SecureStream::stage(std::size_t staging_bytes) noexcept {
  most_staging_ = std::max(staging_bytes, kMostFrameBytes);
}

void SecureStream::finish(End end, std::string why) {
  if (end_ != End::none) return;
  end_ = end;
  why_ = std::move(why);
}

// For the rest of the frame at begin_, at least; more where a read has just filled all there was.
void SecureStream::make_room() {
  if (begin_ > 0 && staging_.size() - begin_ < kMostFrameBytes) {
    std::memmove(staging_.data(), staging_.data() + begin_, end_of_bytes_ - begin_);
    end_of_bytes_ -= begin_;
    begin_ = 0;
  }
  if (end_of_bytes_ < staging_.size() || staging_.size() == most_staging_) return;
  // A little less than all would cut the last frame of each full read in two.
  const std::size_t more = std::max(kFirstStaging, 4 * staging_.size());
  staging_.resize(4 * more > most_staging_ ? most_staging_ : more);
}

bool SecureStream::receive() {
  make_room();
  const std::size_t room = staging_.size() - end_of_bytes_;
  if (room == 0) return false;  // frames to be taken first
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), staging_.data() + end_of_bytes_, room, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  drained_ = got < 0 || static_cast<std::size_t>(got) < room;
  if (got == 0) finish(End::closed, "it has closed its connection");
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
    finish(end_of(errno), fmt::format("the connection to it broke: {}", std::strerror(errno)));
  if (got <= 0) return false;
  end_of_bytes_ += static_cast<std::size_t>(got);
  return true;
}

const Frame* SecureStream::front() {
  if (front_) return &*front_;
  if (end_ == End::forged) return nullptr;
  Frame frame;
  switch (opener_.open(std::span(staging_).subspan(begin_, end_of_bytes_ - begin_), frame)) {
    case FrameOpener::Result::frame:
      front_ = frame;
      return &*front_;
    case FrameOpener::Result::bad:
      forge(opener_.reason());
      return nullptr;
    case FrameOpener::Result::need_more:
      break;
  }
  return nullptr;
}

void SecureStream::forge(std::string_view what) {
  finish(End::forged, fmt::format("the connection to it delivered {}", what));
}

void SecureStream::pop() noexcept {
  begin_ += front_->bytes;
  front_.reset();
  if (begin_ == end_of_bytes_) begin_ = end_of_bytes_ = 0;
}

std::size_t SecureStream::send(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK)
    finish(end_of(errno), fmt::format("sending to it failed: {}", std::strerror(errno)));
  return 0;
}

}  // namespace dtrain::net
