// GPT-2's characters for bytes: those that print stand for themselves, the others are moved to U+0100 and on.
#include <array>
#include <cstdint>

#include "runtime/data/tokens/tokenizer_files.h"
#include "runtime/data/tokens/unicode.h"

namespace dtrain {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr unsigned kMoved = 256, kMovedCount = 68;

struct Table {
  std::array<std::uint16_t, 256> character{};  ///< of a byte
  std::array<std::int16_t, kMoved + kMovedCount> byte{};

  constexpr Table() {
    for (std::int16_t& each : byte) each = -1;
    unsigned moved = kMoved;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = static_cast<std::uint16_t>(stands_for_itself(b) ? b : moved++);
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Table kTable;

}  // namespace

std::string bytes_of_visible(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Character found = decode_character(text.data() + at);
    if (found.code >= kTable.byte.size() || kTable.byte[found.code] < 0) return std::string(text);
    bytes += static_cast<char>(kTable.byte[found.code]);
    at += found.bytes;
  }
  return bytes;
}

std::string visible_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const unsigned character = kTable.character[static_cast<unsigned char>(c)];
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xc0U | character >> 6U);
      text += static_cast<char>(0x80U | (character & 0x3fU));
    }
  }
  return text;
}

}  // namespace dtrain
