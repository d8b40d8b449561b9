// The store's frames and the bytes inside them, as pure functions of byte strings: no sockets here. A frame
// is u32 payload length | u64 sequence number | payload | HMAC-SHA256 over all before it; integers are
// little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/store/store_mac.h"

namespace dtrain::wire {

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 1U << 20;
/// Keys one wait request may name; a client splits longer lists.
inline constexpr std::size_t kMaxWaitKeys = 1024;
/// A value, an expected value and a key, or a full list of keys, with room for their lengths.
inline constexpr std::size_t kMaxPayloadBytes = 2 * kMaxValueBytes + 4096;
inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kFrameOverheadBytes = kFrameHeaderBytes + Digest::kBytes;

/// Appends integers and length-prefixed strings to a byte string.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) noexcept : out_(out) {}
  void u8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void u16(std::uint16_t value) { put(value, 2); }
  void u32(std::uint32_t value) { put(value, 4); }
  void u64(std::uint64_t value) { put(value, 8); }
  void raw(std::string_view bytes) { out_.append(bytes); }
  /// u32 length, then the bytes.
  void text(std::string_view bytes);

 private:
  void put(std::uint64_t value, int bytes);
  std::string& out_;
};

/// Reads what ByteWriter wrote. Reading past the end yields zeros and makes good() false for good; views
/// point into the input.
class ByteReader {
 public:
  explicit ByteReader(std::string_view in) noexcept : in_(in) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(take(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(take(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(take(4)); }
  std::uint64_t u64() { return take(8); }
  std::string_view raw(std::size_t bytes);
  /// A u32 length of at most `max_bytes`, then the bytes.
  std::string_view text(std::size_t max_bytes);
  bool good() const noexcept { return good_; }
  /// Everything was read and nothing was missing.
  bool finished() const noexcept { return good_ && in_.empty(); }

 private:
  std::uint64_t take(std::size_t bytes);
  std::string_view in_;
  bool good_ = true;
};

/// Seals payloads of one direction of one connection; sequence numbers count from 0.
class FrameWriter {
 public:
  explicit FrameWriter(MacKey key) noexcept : key_(std::move(key)) {}
  /// Appends one frame to `out`. `payload` is at most kMaxPayloadBytes.
  void append(std::string& out, std::string_view payload);

 private:
  MacKey key_;
  std::uint64_t sequence_ = 0;
};

/// Opens frames of one direction from a byte stream cut anywhere. Holds at most one frame's bytes besides
/// what feed() last brought. The first bad frame (too long, out of sequence, wrong MAC) is final.
class FrameReader {
 public:
  enum class Result { frame, need_more, bad };

  explicit FrameReader(MacKey key) noexcept : key_(std::move(key)) {}
  void feed(std::string_view bytes);
  /// On `frame`, `payload` views into the reader until the next call of next() or feed(). Call until it says
  /// need_more.
  Result next(std::string_view& payload);
  /// Why the last result was bad.
  std::string_view reason() const noexcept { return reason_; }
  std::size_t buffered_bytes() const noexcept { return buffer_.size() - start_; }

 private:
  Result fail(std::string_view reason) noexcept;
  MacKey key_;
  std::uint64_t sequence_ = 0;
  std::string buffer_;
  std::size_t start_ = 0;  // of the first frame not yet handed out
  std::string_view reason_;
};

enum class Op : std::uint8_t { set = 1, get, try_get, wait, add, compare_set, remove, cancel };
inline constexpr Op kLastOp = Op::cancel;

/// What a client asks. Which fields count depends on `op`.
struct Request {
  Op op = Op::set;
  std::uint64_t id = 0;                 ///< echoed in the response; cancel: the request to give up
  std::vector<std::string> keys;        ///< one, except for wait (any number) and cancel (none)
  std::string value;                    ///< set, compare_set
  std::optional<std::string> expected;  ///< compare_set
  std::int64_t delta = 0;               ///< add
};

enum class Status : std::uint8_t {
  ok = 0,
  absent,     ///< try_get: no such key
  cancelled,  ///< the value lists keys still missing, one a line
  misuse,     ///< the value says what the caller did wrong
  full,       ///< the store's memory limit
};
inline constexpr Status kLastStatus = Status::full;

struct Response {
  std::uint64_t id = 0;
  Status status = Status::ok;
  std::string value;
};

/// Payloads of frames. Decoding returns nullopt for anything that encoding cannot have produced.
std::string encode(const Request& request);
std::string encode(const Response& response);
std::optional<Request> decode_request(std::string_view payload);
std::optional<Response> decode_response(std::string_view payload);

}  // namespace dtrain::wire
