// Words whose tokens need no joining: those that are tokens themselves, and those that a text had before.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tokens/added_tokens.h"

namespace dtrain {

/// What words are found by. Two of up to 16 bytes, and of as many, are the same where `front` and `back` are.
struct WordKey {
  explicit WordKey(std::string_view word) noexcept;

  std::uint64_t front = 0, back = 0;  ///< the first eight bytes and the last, or four, or two
  std::uint64_t hash = 0;             ///< of both and the length
};

/// The tokens of a vocabulary by their bytes. Immutable.
class VocabularyWords {
 public:
  VocabularyWords() = default;
  /// Of equal tokens the first counts; `added` are never found.
  VocabularyWords(const std::vector<std::string>& tokens, std::span<const AddedToken> added);

  /// The token that `word` is, -1 where it is none; `tokens` as given to the constructor.
  std::int32_t find(std::string_view word, const WordKey& key,
                    const std::vector<std::string>& tokens) const noexcept;

 private:
  /// Eight of them share a cache line: what is no word is mostly told by one.
  struct Entry {
    std::uint32_t tag = 0;  ///< of the hash, those bits that are not the place
    std::int32_t token = -1;
  };
  std::vector<Entry> table_;  ///< open addressing; at most half full
  unsigned shift_ = 0;
};

/// The tokens of words that were met before, in 2 MiB. Not thread-safe.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 16, kMostTokens = 3;

  WordCache() : lines_(std::size_t{1} << kLineBits) {}

  /// The tokens of a word of `bytes`, at most kMostBytes; empty where they are not here. Valid until the next
  /// call.
  std::span<const std::int32_t> find(const WordKey& key, std::size_t bytes) noexcept {
    Line& line = line_of(key);
    if (line.first.is(key, bytes)) return {line.first.tokens, line.first.count};
    if (!line.second.is(key, bytes)) return {};
    std::swap(line.first, line.second);
    return {line.first.tokens, line.first.count};
  }
  /// Keeps the tokens of a word that was not found, unless they are more than kMostTokens. It takes the place
  /// of the one that came last: a word that came again stays.
  void put(const WordKey& key, std::size_t bytes, std::span<const std::int32_t> tokens) noexcept;

 private:
  struct Slot {
    bool is(const WordKey& key, std::size_t size) const noexcept {
      return front == key.front && back == key.back && bytes == size;
    }
    std::uint64_t front = 0, back = 0;
    std::uint8_t bytes = 0, count = 0;  ///< bytes 0: nothing here yet
    std::int32_t tokens[kMostTokens] = {};
  };
  struct alignas(64) Line {
    Slot first, second;
  };
  static_assert(sizeof(Line) == 64);
  static constexpr unsigned kLineBits = 15;

  Line& line_of(const WordKey& key) noexcept { return lines_[key.hash >> (64U - kLineBits)]; }

  std::vector<Line> lines_;
};

}  // namespace dtrain
