// What is done to text before it is cut into words: tokenizer.json's normalizers.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

/// Unicode's forms, and what bert_text.h has; `one_space`: white space, however much, is a space.
enum class Normalization {
  nfc,
  nfd,
  nfkc,
  nfkd,
  lowercase,
  clean,
  space_ideographs,
  strip_accents,
  one_space
};

/// "NFC", …; as tokenizer.json has it, where it has a name for it.
constexpr std::string_view name_of(Normalization normalization) noexcept {
  constexpr std::string_view kNames[] = {"NFC",   "NFD",        "NFKC",          "NFKD",     "Lowercase",
                                         "clean", "ideographs", "strip accents", "one space"};
  return kNames[static_cast<int>(normalization)];
}

constexpr bool is_unicode_form(Normalization normalization) noexcept {
  return normalization <= Normalization::nfkd;
}

/// `text`, which is valid UTF-8, in one of Unicode's forms; characters that Unicode normalizes since version
/// 9 only stay as they are, as tokenizers leave them. Throws UsageError where dtrain was built without
/// utf8proc.
std::string normalize(std::string_view text, Normalization normalization);

/// Throws UsageError where dtrain was built without utf8proc.
void check_can_normalize(Normalization normalization);

}  // namespace dtrain
