// Byte pairs: a vocabulary of byte strings and the order in which neighbours are joined.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Joins tokens `left` and `right` into `joined`; the lowest rank goes first, of equal ones the leftmost.
struct Merge {
  std::int32_t left = 0, right = 0, joined = 0;
  std::uint32_t rank = 0;
};

/// Where each byte of UTF-8 begins: the tokens that single bytes are.
using ByteTokens = std::array<std::int32_t, 256>;  ///< -1: not in the vocabulary

/// Encodes single words. Immutable: may be used by any number of threads at once.
class BytePairs {
 public:
  /// `last`: what the last byte of a word is. Of two merges of the same neighbours the later one counts.
  BytePairs(const ByteTokens& bytes, const ByteTokens& last, const std::vector<Merge>& merges);

  /// Appends the tokens of `word`. O(n log n) in its bytes.
  void encode(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  struct Entry {
    std::uint64_t neighbours = kNone;
    std::int32_t joined = -1;
    std::uint32_t rank = UINT32_MAX;
  };
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  /// UINT32_MAX as rank where they are not joined.
  const Entry& find(std::int32_t left, std::int32_t right) const noexcept;
  std::size_t place_of(std::uint64_t neighbours) const noexcept;
  void encode_short(std::string_view word, std::vector<std::int32_t>& tokens) const;
  void encode_long(std::string_view word, std::vector<std::int32_t>& tokens) const;

  std::int32_t token_at(std::string_view word, std::size_t i) const noexcept {
    return (i + 1 == word.size() ? last_ : bytes_)[static_cast<unsigned char>(word[i])];
  }

  ByteTokens bytes_, last_;
  std::vector<Entry> table_;  ///< open addressing; at most half full
  std::uint64_t mask_ = 0;
  unsigned shift_ = 0;
};

}  // namespace dtrain
