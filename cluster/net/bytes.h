// Integers and length-prefixed strings as bytes, little-endian. Pure functions of byte strings: no sockets
// here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::wire {

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

}  // namespace dtrain::wire
