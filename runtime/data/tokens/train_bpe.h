// Learns byte pairs from words (Sennrich et al. 2016): the pair that occurs most often becomes a token, again
// and again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dtrain {

struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const noexcept { return std::hash<std::string_view>()(word); }
};
/// Words (their bytes), and how often each occurs.
using WordCounts = std::unordered_map<std::string, std::int64_t, WordHash, std::equal_to<>>;

/// The end of a document, which is token 0.
inline constexpr const char* kEndOfText = "<|endoftext|>";
/// Of kEndOfText and the 256 bytes.
inline constexpr std::int64_t kLeastVocabulary = 257;
inline constexpr std::int64_t kMostVocabulary = 1 << 24;  ///< what tokenizer.json is read with

struct LearnedPairs {
  std::vector<std::string> tokens;  ///< bytes of each by its number: kEndOfText, the bytes, what pairs become
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  ///< numbers of the two, in order
};

/// The merges, and the order of them, that the BpeTrainer of Hugging Face's tokenizers learns with all bytes
/// as initial alphabet and kEndOfText as special token: of pairs that occur equally often the one with the
/// lower numbers goes first. Stops at `vocabulary` tokens or where no pair is left. The result depends on
/// nothing else. Counts are updated where a pair is joined, not counted again. Throws UsageError for a
/// vocabulary below kLeastVocabulary. `on_token` gets the number of tokens, now and then.
LearnedPairs learn_pairs(const WordCounts& words, std::int64_t vocabulary,
                         const std::function<void(std::int64_t)>& on_token = {});

}  // namespace dtrain
