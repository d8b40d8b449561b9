#include "runtime/data/tokens/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace dtrain {
namespace {

/// Words up to here are searched for their lowest rank again after each merge; longer ones keep a heap.
constexpr std::size_t kShort = 48;

std::uint64_t neighbours_of(std::int32_t left, std::int32_t right) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U |
         static_cast<std::uint32_t>(right);
}

/// A token of a long word, in a list; joined ones stay behind without length.
struct Symbol {
  std::int32_t token = -1, before = -1, behind = -1;
  bool gone = false;
};

struct Candidate {
  std::uint32_t rank = 0;
  std::int32_t at = 0;      ///< of its left symbol
  std::int32_t joined = 0;  ///< what it would become: another one by now where a neighbour was joined
  bool operator<(const Candidate& other) const noexcept {  // the queue's top is the greatest
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

BytePairs::BytePairs(const ByteTokens& bytes, const ByteTokens& last, const std::vector<Merge>& merges)
    : bytes_(bytes), last_(last) {
  table_.resize(std::bit_ceil(std::max<std::size_t>(2 * merges.size(), 16)));
  mask_ = table_.size() - 1;
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(table_.size()));
  for (const Merge& merge : merges) {
    const std::uint64_t neighbours = neighbours_of(merge.left, merge.right);
    table_[place_of(neighbours)] = {neighbours, merge.joined, merge.rank};
  }
}

std::size_t BytePairs::place_of(std::uint64_t neighbours) const noexcept {
  std::size_t at = neighbours * 0x9e3779b97f4a7c15U >> shift_;
  while (table_[at].neighbours != neighbours && table_[at].neighbours != kNone) at = (at + 1) & mask_;
  return at;
}

const BytePairs::Entry& BytePairs::find(std::int32_t left, std::int32_t right) const noexcept {
  return table_[place_of(neighbours_of(left, right))];
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& tokens) const {
  if (word.size() <= kShort) return encode_short(word, tokens);
  encode_long(word, tokens);
}

void BytePairs::encode_short(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::array<std::int32_t, kShort> symbols, joined;  // joined, ranks: of the symbol and the one behind it
  std::array<std::uint32_t, kShort> ranks;
  std::size_t count = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const std::int32_t token = token_at(word, i);
    if (token >= 0) symbols[count++] = token;
  }
  const auto look_up = [&](std::size_t i) {
    const Entry& entry = find(symbols[i], symbols[i + 1]);
    ranks[i] = entry.rank;
    joined[i] = entry.joined;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const auto lowest =
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
    if (*lowest == UINT32_MAX) break;
    const auto at = static_cast<std::size_t>(lowest - ranks.begin());
    symbols[at] = joined[at];
    --count;
    for (std::size_t i = at + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = at; i + 1 < count; ++i) {
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    if (at + 1 < count) look_up(at);
    if (at > 0) look_up(at - 1);
  }
  tokens.insert(tokens.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void BytePairs::encode_long(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    const std::int32_t token = token_at(word, i);
    if (token < 0) continue;
    const auto at = static_cast<std::int32_t>(symbols.size());
    if (at > 0) symbols.back().behind = at;
    symbols.push_back({.token = token, .before = at - 1});
  }
  std::priority_queue<Candidate> candidates;
  const auto offer = [&](std::int32_t at) {
    if (at < 0 || symbols[static_cast<std::size_t>(at)].behind < 0) return;
    const Symbol& left = symbols[static_cast<std::size_t>(at)];
    const Entry& entry = find(left.token, symbols[static_cast<std::size_t>(left.behind)].token);
    if (entry.rank != UINT32_MAX) candidates.push({entry.rank, at, entry.joined});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int32_t>(i));
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<std::size_t>(best.at)];
    if (left.gone || left.behind < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.behind)];
    const Entry& entry = find(left.token, right.token);
    if (entry.rank != best.rank || entry.joined != best.joined) continue;
    left.token = best.joined;
    left.behind = right.behind;
    right.gone = true;
    if (left.behind >= 0) symbols[static_cast<std::size_t>(left.behind)].before = best.at;
    offer(best.at);
    offer(left.before);
  }
  for (const Symbol& symbol : symbols)
    if (!symbol.gone) tokens.push_back(symbol.token);
}

}  // namespace dtrain
