// What is done to text before it is cut into words: tokenizer.json's normalizers.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

enum class Normalization { nfc, nfd, nfkc, nfkd };

/// "NFC", …; as tokenizer.json has it.
constexpr std::string_view name_of(Normalization normalization) noexcept {
  constexpr std::string_view kNames[] = {"NFC", "NFD", "NFKC", "NFKD"};
  return kNames[static_cast<int>(normalization)];
}

/// `text`, which is valid UTF-8, normalized; characters that Unicode normalizes since version 9 only stay as
/// they are, as tokenizers leave them. Throws UsageError where dtrain was built without utf8proc.
std::string normalize(std::string_view text, Normalization normalization);

/// Throws UsageError where dtrain was built without utf8proc.
void check_can_normalize(Normalization normalization);

}  // namespace dtrain
