// Protobuf by hand, for files that have a few fields of a few messages: a field is its number and wire type
// in one varint, then the value (protobuf.dev/programming-guides/encoding). Internal to runtime/metrics.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace dtrain::protobuf {

template <class T>
void put_little_endian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline void put_tag(std::string& out, std::uint32_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}

/// An integer or a truth value; negative numbers take ten bytes.
inline void put_integer(std::string& out, std::uint32_t field, std::int64_t value) {
  put_tag(out, field, Wire::varint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

/// A text, bytes or a message inside.
inline void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_tag(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace dtrain::protobuf
