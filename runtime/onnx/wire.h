// Protocol Buffers' wire format, the little of it that onnx.proto needs: numbers, texts and messages in
// messages. https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::onnx {

/// One message, field by field, in the order they are added.
class Message {
 public:
  /// A field of type int32, int64, bool or enum.
  void number(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  /// A field of type float.
  void real(int field, float value) {
    tag(field, 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }
  /// A field of type string or bytes.
  void text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }

  const std::string& bytes() const& noexcept { return bytes_; }
  std::string bytes() && noexcept { return std::move(bytes_); }

 private:
  void tag(int field, unsigned kind) { varint(static_cast<std::uint64_t>(field) << 3 | kind); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace dtrain::onnx
