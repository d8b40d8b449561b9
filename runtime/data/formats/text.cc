#include "runtime/data/formats/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>

namespace dtrain {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

/// Bytes of the UTF-8 character at the front of `text`, which is not empty; 0 where there is none (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, i) & 0xc0U) != 0x80) return 0;
  const unsigned second = byte_at(text, 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || outside ? 0 : length;
}

/// C0, DEL and C1: what terminals act on.
bool is_control(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && byte_at(character, 1) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    const std::string_view character = text.substr(at, std::max<std::size_t>(length, 1));
    const bool kept = lines && (character == "\n" || character == "\t");
    if (kept || (length > 0 && !is_control(character))) {
      shown += character;
    } else {
      for (const char byte : character) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += character.size();
  }
  return shown;
}

std::size_t valid_utf8(std::string_view text) noexcept {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof word) {  // mostly ASCII, eight at a time
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & kHighBits) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.size();
}

std::string to_utf8(std::string_view text) {
  if (valid_utf8(text) == text.size()) return std::string(text);
  std::string converted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) converted += static_cast<char>(0xc0U | byte >> 6U);
    converted += static_cast<char>(byte < 0x80 ? byte : 0x80U | (byte & 0x3fU));
  }
  return converted;
}

std::vector<std::string> distinct_utf8(std::vector<std::string> names) {
  const std::set<std::string> given(names.begin(), names.end());
  std::set<std::string> changed;
  for (std::string& name : names) {
    if (valid_utf8(name) == name.size()) continue;
    name = to_utf8(name);
    while (given.contains(name) || !changed.insert(name).second) name += '?';
  }
  return names;
}

}  // namespace dtrain
