// A message travels as frames: u32 length of the body | u64 tag of the message | body | MAC (16 bytes, over
// all before it and the frame's place in the stream); integers are little-endian, no body is empty. Pure
// functions of bytes: no sockets here.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "cluster/net/cipher.h"

namespace dtrain::net {

inline constexpr std::size_t kHeaderBytes = 12;
/// The longest body. Long enough that starting a MAC and asking the kernel to send cost little beside it,
/// short enough that a sender's MAC, the kernel's copy and the receiver's MAC overlap, and that all of them
/// find it in a core's own cache.
inline constexpr std::size_t kMostBodyBytes = 64 * 1024;
inline constexpr std::size_t kMostFrameBytes = kHeaderBytes + kMostBodyBytes + kMacBytes;

/// A frame ready to be sent: three pieces, one after another.
struct SealedFrame {
  std::array<std::byte, kHeaderBytes> header;
  std::span<const std::byte> body;  ///< borrowed
  Mac mac;
  std::size_t mac_bytes;  ///< 0 without protection

  std::size_t bytes() const noexcept { return header.size() + body.size() + mac_bytes; }
};

class FrameSealer {
 public:
  /// `key`: as for Cipher.
  FrameSealer(Protection protection, std::string_view key);

  /// `body` has 1 to kMostBodyBytes and must stay as it is until the frame has been sent; encrypt: only until
  /// this returns, but the frame only until the next one is sealed.
  SealedFrame seal(std::uint64_t tag, std::span<const std::byte> body);

 private:
  std::optional<Cipher> cipher_;
  std::vector<std::byte> encrypted_;  ///< as long as the longest body, where bodies are encrypted
};

/// A frame that was opened: its bytes are what the peer sent, in the peer's order.
struct Frame {
  std::uint64_t tag = 0;
  std::span<const std::byte> body;
  std::size_t bytes = 0;  ///< of the whole frame
};

class FrameOpener {
 public:
  enum class Result { frame, need_more, bad };

  /// `key`: as for Cipher.
  FrameOpener(Protection protection, std::string_view key);

  /// Opens the frame at the beginning of `stream`, which is what has come and was not opened yet. On `frame`
  /// the next call is for what follows frame.bytes. What is bad (an impossible length, a MAC that does not
  /// fit) is so for good: `stream` is then not to be used. A body may be decrypted in place.
  Result open(std::span<std::byte> stream, Frame& frame);

  /// Why the last result was bad.
  std::string_view reason() const noexcept { return reason_; }

 private:
  Result fail(std::string_view reason) noexcept;

  std::optional<Cipher> cipher_;
  std::string_view reason_;
};

}  // namespace dtrain::net
