// Frames over one connection whose ends have proved to each other who they are: what the store and the tcp
// backend speak through. A Connector or an Acceptor makes one; docs/decisions/065-one-secure-stream.md.
#pragma once

#include <sys/uio.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/frames.h"
#include "runtime/base/fd.h"

namespace dtrain::net {

/// Used by one thread at a time. Never blocks. Movable.
class SecureStream {
 public:
  /// Why nothing more comes, or goes.
  enum class End {
    none,
    closed,  ///< the other end has closed it in order, or its process has ended
    reset,   ///< the other end's kernel refuses it: its process is gone
    failed,  ///< the network, or the other machine
    forged   ///< what came is not what the other end sent
  };

  /// `fd` does not block. Keeps at most `staging_bytes`, at least one frame, of what has come and was not
  /// taken; memory is taken as it is needed.
  SecureStream(UniqueFd fd, FrameSealer sealer, FrameOpener opener,
               std::size_t staging_bytes = kMostFrameBytes);

  int fd() const noexcept { return fd_.get(); }
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  void close() noexcept { fd_.reset(); }
  void stage(std::size_t staging_bytes) noexcept;

  End end() const noexcept { return end_; }
  /// The end in words, of "it": "it has closed its connection"; empty while there is none.
  const std::string& why() const noexcept { return why_; }

  /// Reads once; true when bytes have come. Not while there is a front().
  bool receive();
  /// The last receive() left nothing in the socket.
  bool drained() const noexcept { return drained_; }
  /// The next frame, nullptr when it has not come whole, or when the stream ends here. Stays until pop().
  const Frame* front();
  /// What came is authentic and yet nothing that the other end may say: the stream ends here.
  void forge(std::string_view what);
  bool has_front() const noexcept { return front_.has_value(); }
  void pop() noexcept;
  /// Some bytes have been read and not been taken; the kernel knows of them no more.
  bool holds_bytes() const noexcept { return end_of_bytes_ > begin_; }

  /// As FrameSealer::seal. Frames must be sent in the order in which they were sealed.
  SealedFrame seal(std::uint64_t tag, std::span<const std::byte> body) { return sealer_.seal(tag, body); }
  /// Sends what the socket takes of `pieces`; returns how many bytes that were, 0 also at the end.
  std::size_t send(std::span<iovec> pieces);

 private:
  void finish(End end, std::string why);
  void make_room();

  UniqueFd fd_;
  FrameSealer sealer_;
  FrameOpener opener_;
  End end_ = End::none;
  std::string why_;

  std::size_t most_staging_;
  std::vector<std::byte> staging_;            ///< grows up to most_staging_
  std::size_t begin_ = 0, end_of_bytes_ = 0;  ///< of what has come and was not taken, in staging_
  bool drained_ = false;
  std::optional<Frame> front_;  ///< at begin_
};

}  // namespace dtrain::net
