// Structs as bytes, their fields listed once for both directions:
//
//   template <class Fields>
//   void describe(Fields& f, typename Fields::template Of<Ended>& ended) { f(ended.round, ended.exit_code); }
//
// beside the struct's namespace; then write_fields(ended) and read_fields<Ended>(bytes). Integers have their
// own size, as in the store's frames; bool is one byte, an optional a bool and, if it is there, its value.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "cluster/net/bytes.h"
#include "cluster/net/endpoint.h"
#include "runtime/base/clock.h"

namespace dtrain::wire {

inline constexpr std::size_t kMaxHostBytes = 253;

/// Writes what it is called with. What is too long is cut, so that it can be read again.
class FieldWriter {
 public:
  template <class T>
  using Of = const T;

  explicit FieldWriter(std::string& bytes) : bytes_(bytes), out_(bytes) {}
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void text(std::string_view value, std::size_t most_bytes) { out_.text(value.substr(0, most_bytes)); }
  /// Of an enumeration whose values end before `end`.
  template <class T>
  void below(const T& value, unsigned) {
    out_.u8(static_cast<std::uint8_t>(value));
  }
  template <class List, class Each>
  void list(const List& values, std::size_t most, const Each& each) {
    const std::size_t count = std::min(values.size(), most);
    out_.u32(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) each(*this, values[i]);
  }
  /// For what is written by hand.
  std::string& bytes() noexcept { return bytes_; }

 private:
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, Duration>) {
      put(std::int64_t{value.count()});
    } else if constexpr (std::is_same_v<T, Endpoint>) {
      text(value.host, kMaxHostBytes);
      put(value.port);
    } else if constexpr (!std::is_integral_v<T>) {
      describe(*this, value);
    } else if constexpr (sizeof value == 1) {
      out_.u8(static_cast<std::uint8_t>(value));
    } else if constexpr (sizeof value == 2) {
      out_.u16(static_cast<std::uint16_t>(value));
    } else if constexpr (sizeof value == 4) {
      out_.u32(static_cast<std::uint32_t>(value));
    } else {
      out_.u64(static_cast<std::uint64_t>(value));
    }
  }

  std::string& bytes_;
  ByteWriter out_;
};

/// Reads into what it is called with. What is wrong shows at the end.
class FieldReader {
 public:
  template <class T>
  using Of = T;

  explicit FieldReader(std::string_view bytes) : in_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (take(values), ...);
  }
  void text(std::string& value, std::size_t most_bytes) { value = in_.text(most_bytes); }
  template <class T>
  void below(T& value, unsigned end) {
    const unsigned got = in_.u8();
    expect(got < end);
    value = static_cast<T>(got);
  }
  template <class List, class Each>
  void list(List& values, std::size_t most, const Each& each) {
    const std::uint32_t count = in_.u32();
    expect(count <= most);
    for (std::uint32_t i = 0; i < count && good(); ++i) each(*this, values.emplace_back());
  }
  /// It is malformed unless `holds`.
  void expect(bool holds) { well_ = well_ && holds; }
  bool good() const { return well_ && in_.good(); }
  /// Everything was read, and all of it was well.
  bool finished() const { return well_ && in_.finished(); }
  /// For what is read by hand.
  ByteReader& bytes() noexcept { return in_; }

 private:
  template <class T>
  void take(std::optional<T>& value) {
    bool there = false;
    take(there);
    if (there) take(value.emplace());
  }
  template <class T>
  void take(T& value) {
    if constexpr (std::is_same_v<T, Duration>) {
      value = Duration(static_cast<std::int64_t>(in_.u64()));
    } else if constexpr (std::is_same_v<T, Endpoint>) {
      text(value.host, kMaxHostBytes);
      take(value.port);
    } else if constexpr (std::is_same_v<T, bool>) {
      below(value, 2);
    } else if constexpr (!std::is_integral_v<T>) {
      describe(*this, value);
    } else if constexpr (sizeof value == 1) {
      value = static_cast<T>(in_.u8());
    } else if constexpr (sizeof value == 2) {
      value = static_cast<T>(in_.u16());
    } else if constexpr (sizeof value == 4) {
      value = static_cast<T>(in_.u32());
    } else {
      value = static_cast<T>(in_.u64());
    }
  }

  ByteReader in_;
  bool well_ = true;
};

template <class T>
std::string write_fields(const T& value) {
  std::string bytes;
  FieldWriter out(bytes);
  out(value);
  return bytes;
}

/// nullopt for anything but what write_fields() yields.
template <class T>
std::optional<T> read_fields(std::string_view bytes) {
  FieldReader in(bytes);
  std::optional<T> value(std::in_place);
  in(*value);
  if (!in.finished()) value.reset();
  return value;
}

}  // namespace dtrain::wire
