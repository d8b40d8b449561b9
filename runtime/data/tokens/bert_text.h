// What BERT's tokenizers do to text before it is cut into pieces of words (Devlin et al. 2019), character by
// character as Hugging Face's tokenizers do it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/data/tokens/pre_tokenizer.h"

namespace dtrain::bert {

/// Characters `first` to `last`.
struct CharacterRun {
  char32_t first = 0, last = 0;
};
/// The letters first, first + step, … last, whose small ones are `difference` away.
struct LowerRun {
  char32_t first = 0, last = 0, step = 1;
  std::int32_t difference = 0;
};
/// Tables, ascending. Accents are combining marks that take no room of their own (Mn).
std::span<const CharacterRun> removed_characters() noexcept;
std::span<const CharacterRun> punctuation() noexcept;
std::span<const CharacterRun> accents() noexcept;
std::span<const LowerRun> lower_letters() noexcept;

/// `text`, which is valid UTF-8, without control characters, and each white space a space.
std::string clean(std::string_view text);
/// A space on either side of each ideograph, so that it is a word.
std::string space_ideographs(std::string_view text);
/// Without the marks of a text in NFD.
std::string without_accents(std::string_view text);
/// White space, however much, is a space.
std::string with_one_space(std::string_view text);
/// Letter by letter; no letter's small one depends on its neighbours.
std::string lowercase(std::string_view text);

/// Words lie between white space, and each punctuation character is one.
std::shared_ptr<const PreTokenizer> make_pre_tokenizer();

}  // namespace dtrain::bert
