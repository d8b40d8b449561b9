// Tokens that a text is searched for before it is cut into words: "<|endoftext|>", and what users add.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// As tokenizer.json's added_tokens.
struct AddedToken {
  std::int32_t id = 0;
  std::string content = {};  ///< UTF-8
  bool special = false;      ///< stands for something that no text says, as the end of a document
  bool left_strip = false;   ///< takes the whitespace in front of it along
  bool right_strip = false;  ///< and behind it
  bool single_word = false;  ///< only where no letter, digit, mark or underscore touches it
  bool normalized = false;   ///< searched for in the normalized text
};

/// Finds any of some tokens. Immutable.
class AddedTokenSearch {
 public:
  /// Tokens with empty content are never found.
  explicit AddedTokenSearch(std::vector<AddedToken> tokens);

  struct Found {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  /// The first token from `at` on, of those that begin there the longest. None where there is none.
  std::optional<Found> next(std::string_view text, std::size_t at) const;
  bool empty() const noexcept { return tokens_.empty(); }

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;  ///< by content
  bool begins_[256] = {};
};

/// `found` as its token wants it: without what it may not touch (then none), with the whitespace that it
/// takes along, but not in front of `least`.
std::optional<AddedTokenSearch::Found> settled(const AddedTokenSearch::Found& found, std::string_view text,
                                               std::size_t least);

}  // namespace dtrain
