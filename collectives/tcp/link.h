// One connection to one peer: what waits to be sent, what is expected, and the bytes between. A byte reaches
// the memory of an expected message only from a frame that was opened.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "cluster/net/secure_stream.h"

namespace dtrain::tcp {

/// Used by one thread at a time. `pending` of a call counts messages that are not done yet; it identifies its
/// owner and is borrowed until they are, or forgotten.
class Link {
 public:
  /// Keeps at most `staging_bytes`, at least one frame, of what has come and is not expected yet.
  Link(int rank, net::SecureStream stream, std::size_t staging_bytes);

  int rank() const noexcept { return rank_; }
  int fd() const noexcept { return stream_.fd(); }
  bool sends() const noexcept { return !outgoing_.empty(); }
  bool expects() const noexcept { return !expected_.empty(); }
  /// The next frame has arrived before a receive was posted for it.
  bool holds_frame() const noexcept { return stream_.has_front(); }
  /// Some bytes have been read and not been taken; the kernel knows of them no more.
  bool holds_bytes() const noexcept { return stream_.holds_bytes(); }

  /// A message is sent once the kernel has all of it. Neither moves anything.
  void send(std::uint64_t tag, const std::byte* data, std::size_t bytes, int& pending);
  void expect(std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending);

  /// Send, or take in, what can be at once; true when anything moved. Throw LinkLost when the connection is
  /// over or brought what the peer did not send.
  bool flush();
  bool take();

  /// Whether the next frame to come is here and has `tag`; drop_front() takes it.
  bool front_has(std::uint64_t tag);
  void drop_front() noexcept { stream_.pop(); }

  /// Drops the messages that count into `pending`.
  void forget(const int& pending) noexcept;
  void close() noexcept { stream_.close(); }

 private:
  struct Outgoing {
    std::uint64_t tag;
    const std::byte* data;
    std::size_t left;
    int* pending;
  };
  struct Expected {
    std::uint64_t tag;
    std::byte* data;
    std::size_t left;
    int* pending;
  };

  void check_open() const;
  /// Sends what it can of the sealed frame; true once it has gone.
  bool push_sealed(bool& moved);
  /// The next frame; nullptr when it has not come whole.
  const net::Frame* fetch();
  [[noreturn]] void lose(const std::string& why) const;

  const int rank_;
  net::SecureStream stream_;
  std::deque<Outgoing> outgoing_;
  std::vector<Expected> expected_;  ///< in the order in which they were asked for
  std::optional<net::SealedFrame> sealed_;
  std::size_t sealed_sent_ = 0;
  bool drained_ = false;  ///< the socket had no more a moment ago
};

}  // namespace dtrain::tcp
