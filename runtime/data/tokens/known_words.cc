#include "runtime/data/tokens/known_words.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

namespace dtrain {
namespace {

template <class Word>
std::uint64_t load(const char* from) noexcept {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

}  // namespace

WordKey::WordKey(std::string_view word) noexcept {
  const char* const first = word.data();
  const char* const end = first + word.size();
  if (word.size() >= 8) {
    front = load<std::uint64_t>(first);
    back = load<std::uint64_t>(end - 8);
  } else if (word.size() >= 4) {
    front = load<std::uint32_t>(first);
    back = load<std::uint32_t>(end - 4);
  } else if (word.size() >= 2) {
    front = load<std::uint16_t>(first);
    back = load<std::uint16_t>(end - 2);
  } else {
    front = load<std::uint8_t>(first);
  }
  const std::uint64_t mixed = (front ^ word.size()) * 0x9e3779b97f4a7c15U ^ back * 0xc2b2ae3d27d4eb4fU;
  hash = (mixed ^ mixed >> 29U) * 0xbf58476d1ce4e5b9U;
}

VocabularyWords::VocabularyWords(const std::vector<std::string>& tokens, std::span<const AddedToken> added) {
  std::unordered_set<std::string_view> others;
  for (const AddedToken& token : added) others.insert(token.content);
  table_.resize(std::bit_ceil(std::max<std::size_t>(2 * tokens.size(), 16)));
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(table_.size()));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    const WordKey key(token);
    if (token.empty() || others.contains(token) || find(token, key, tokens) >= 0) continue;
    std::size_t at = key.hash >> shift_;
    while (table_[at].token >= 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = {static_cast<std::uint32_t>(key.hash), static_cast<std::int32_t>(id)};
  }
}

std::int32_t VocabularyWords::find(std::string_view word, const WordKey& key,
                                   const std::vector<std::string>& tokens) const noexcept {
  const auto tag = static_cast<std::uint32_t>(key.hash);
  for (std::size_t at = key.hash >> shift_; table_[at].token >= 0; at = (at + 1) & (table_.size() - 1)) {
    const Entry& entry = table_[at];
    if (entry.tag == tag && tokens[static_cast<std::size_t>(entry.token)] == word) return entry.token;
  }
  return -1;
}

void WordCache::put(const WordKey& key, std::size_t bytes, std::span<const std::int32_t> tokens) noexcept {
  if (tokens.size() > kMostTokens) return;
  Line& line = line_of(key);
  Slot& slot = line.first.bytes == 0 ? line.first : line.second;
  slot = {.front = key.front,
          .back = key.back,
          .bytes = static_cast<std::uint8_t>(bytes),
          .count = static_cast<std::uint8_t>(tokens.size())};
  std::ranges::copy(tokens, slot.tokens);
}

}  // namespace dtrain
