// Classes of characters, as the patterns that cut text into words need them. A table of one Unicode version:
// tokens must not depend on the distribution's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dtrain {

/// Code points, used or not.
inline constexpr std::uint32_t kCharacters = 0x110000;

/// Bits of a character's class; a character has one of them or none.
enum CharacterClass : std::uint8_t {
  kUpper = 1,        ///< Lu and Lt
  kLower = 2,        ///< Ll
  kOtherLetter = 4,  ///< Lm and Lo
  kMark = 8,         ///< M
  kNumber = 16,      ///< N
  kSpace = 32,       ///< White_Space
  kPunctuation = 64,
  kSymbol = 128,
  kLetter = kUpper | kLower | kOtherLetter,
};

/// What the table of runs tells apart: Unicode's general categories, the finer ones only of letters.
enum class CharacterKind : std::uint8_t { none, lu, ll, lt, lm, lo, m, n, p, s, space };

/// Runs of characters of one kind, from U+0000 on: first character << 4 | kind, ascending.
std::span<const std::uint32_t> character_runs() noexcept;

/// The class of each character, by its code point (0x110000 bytes). Built at the first call.
const std::uint8_t* character_classes();

/// A character of valid UTF-8.
struct Character {
  char32_t code = 0;
  std::uint32_t bytes = 0;
};

/// The character at the front of `text`, which points at valid UTF-8.
inline Character decode_character(const char* text) noexcept {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1fU) << 6U | (byte(1) & 0x3fU), 2};
  if (first < 0xf0) return {(first & 0xfU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU), 3};
  return {(first & 7U) << 18U | (byte(1) & 0x3fU) << 12U | (byte(2) & 0x3fU) << 6U | (byte(3) & 0x3fU), 4};
}

/// Appends `code`, a character or a surrogate, in UTF-8.
void append_character(std::string& text, char32_t code);

}  // namespace dtrain
