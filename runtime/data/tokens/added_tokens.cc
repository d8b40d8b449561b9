#include "runtime/data/tokens/added_tokens.h"

#include <algorithm>

#include "runtime/data/tokens/unicode.h"

namespace dtrain {
namespace {

/// Where the character in front of `at` begins; `at` is not 0.
std::size_t before(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80);
  return at;
}

unsigned class_at(std::string_view text, std::size_t at) {
  return character_classes()[decode_character(text.data() + at).code];
}

/// \w of the character at `at`.
bool word_at(std::string_view text, std::size_t at) {
  constexpr unsigned kWord = kLetter | kMark | kNumber;
  return text[at] == '_' || (class_at(text, at) & kWord) != 0;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !word_at(text, before(text, begin))) && (end == text.size() || !word_at(text, end));
}

}  // namespace

AddedTokenSearch::AddedTokenSearch(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) begins_[static_cast<unsigned char>(token.content[0])] = true;
}

const AddedToken* AddedTokenSearch::longest_at(std::string_view text, std::size_t at) const {
  const AddedToken* longest = nullptr;
  auto low = tokens_.begin(), high = tokens_.end();
  for (std::size_t depth = 0; at + depth < text.size(); ++depth) {
    // Of the tokens that have begun as the text does, those that continue as it does; a shorter one is first.
    const char wanted = text[at + depth];
    const auto less = [depth](const AddedToken& token, char c) {
      return token.content.size() <= depth ||
             static_cast<unsigned char>(token.content[depth]) < static_cast<unsigned char>(c);
    };
    low = std::lower_bound(low, high, wanted, less);
    high = std::partition_point(low, high,
                                [&](const AddedToken& token) { return token.content[depth] == wanted; });
    if (low == high) break;
    if (low->content.size() == depth + 1) longest = &*low;
  }
  return longest;
}

std::optional<AddedTokenSearch::Found> AddedTokenSearch::next(std::string_view text, std::size_t at) const {
  if (empty()) return std::nullopt;
  for (; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    if (const AddedToken* const token = longest_at(text, at))
      return Found{at, at + token->content.size(), token};
  }
  return std::nullopt;
}

std::optional<AddedTokenSearch::Found> settled(const AddedTokenSearch::Found& found, std::string_view text,
                                               std::size_t least) {
  AddedTokenSearch::Found result = found;
  if (found.token->single_word && !stands_alone(text, found.begin, found.end)) return std::nullopt;
  const auto space = [&](std::size_t at) { return (class_at(text, at) & kSpace) != 0; };
  if (found.token->left_strip) {
    while (result.begin > least && space(before(text, result.begin)))
      result.begin = before(text, result.begin);
  }
  if (found.token->right_strip) {
    while (result.end < text.size() && space(result.end))
      result.end += decode_character(text.data() + result.end).bytes;
  }
  return result;
}

}  // namespace dtrain
