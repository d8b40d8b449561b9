// WordPiece: a word is cut from front to back into the longest pieces that the vocabulary has (Wu et al.
// 2016).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrain {

struct WordPieceRule {
  std::string unknown;                 ///< the token of a word that cannot be cut
  std::string prefix = "##";           ///< of pieces that do not begin a word
  std::int64_t most_characters = 100;  ///< of a word that is looked at
  bool cleans_up = true;               ///< decoding leaves no space before punctuation and English endings
};

/// Immutable: may be used by any number of threads at once.
class WordPieces {
 public:
  /// `tokens` by number, which it refers to. Throws UsageError where `rule.unknown` is none of them.
  WordPieces(WordPieceRule rule, const std::vector<std::string>& tokens, const std::string& name);

  /// Appends the tokens of `word`, which is valid UTF-8.
  void encode(std::string_view word, std::vector<std::int32_t>& tokens) const;
  /// Appends `token` to the text of those before it: a space, or none where it continues a word.
  void append(std::string_view token, std::string& text) const;

 private:
  WordPieceRule rule_;
  std::unordered_map<std::string_view, std::int32_t> first_, other_;  ///< other_: without the prefix
  std::int32_t unknown_ = -1;
  std::size_t longest_ = 0;  ///< bytes of a token
};

}  // namespace dtrain
