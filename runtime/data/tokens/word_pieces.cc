#include "runtime/data/tokens/word_pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {

WordPieces::WordPieces(WordPieceRule rule, const std::vector<std::string>& tokens, const std::string& name)
    : rule_(std::move(rule)) {
  first_.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.empty()) continue;
    first_.emplace(token, static_cast<std::int32_t>(id));
    longest_ = std::max(longest_, token.size());
    if (token.starts_with(rule_.prefix)) {
      other_.emplace(token.substr(rule_.prefix.size()), static_cast<std::int32_t>(id));
    }
  }
  const auto found = first_.find(rule_.unknown);
  if (found == first_.end()) {
    throw UsageError(
        fmt::format("tokenizer {}: expected the token \"{}\" for unknown words in the vocabulary, got none",
                    name, rule_.unknown));
  }
  unknown_ = found->second;
}

void WordPieces::encode(std::string_view word, std::vector<std::int32_t>& tokens) const {
  const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; };
  const std::size_t before = tokens.size();
  const bool is_short = std::count_if(word.begin(), word.end(), is_first_byte) <= rule_.most_characters;
  for (std::size_t at = 0; at < word.size() && is_short;) {
    const auto& pieces = at == 0 ? first_ : other_;
    std::size_t end = std::min(word.size(), at + longest_);
    auto found = pieces.end();
    for (; end > at; --end) {
      if (end < word.size() && !is_first_byte(word[end])) continue;
      found = pieces.find(word.substr(at, end - at));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) break;
    tokens.push_back(found->second);
    at = end;
    if (at == word.size()) return;
  }
  tokens.resize(before);
  tokens.push_back(unknown_);
}

void WordPieces::append(std::string_view token, std::string& text) const {
  constexpr std::string_view kClosing[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  if (!text.empty() && token.starts_with(rule_.prefix)) {
    text += token.substr(rule_.prefix.size());
    return;
  }
  const bool closes =
      rule_.cleans_up && std::any_of(std::begin(kClosing), std::end(kClosing),
                                     [&](std::string_view each) { return token.starts_with(each); });
  if (!text.empty() && !closes) text += ' ';
  text += token;
}

}  // namespace dtrain
