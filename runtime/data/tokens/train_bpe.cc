#include "runtime/data/tokens/train_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const noexcept {
    const std::uint64_t both = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32U |
                               static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>((both ^ both >> 29U) * 0x9e3779b97f4a7c15U);
  }
};

using Places = std::vector<std::uint32_t>;  ///< numbers of words, ascending

/// A pair that may be joined. The count is that of when it was put in: it may have fallen since.
struct CountedPair {
  std::int64_t count = 0;
  Pair pair;
  Places words;  ///< that have it, or had
};

/// The heap's top is the greatest: the highest count, then the lowest numbers. Words differ where a pair came
/// up twice, as "ab c" and "a bc" make the same token.
bool less(const CountedPair& a, const CountedPair& b) {
  return std::tie(a.count, b.pair, b.words) < std::tie(b.count, a.pair, a.words);
}

struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t count = 0;
};

/// Joins `pair` to `joined` in `word` and calls `change(pair, by)` for each neighbourhood that goes or comes.
/// The joined pair itself is not counted down.
template <class Change>
void join(std::vector<std::int32_t>& word, Pair pair, std::int32_t joined, const Change& change) {
  std::size_t kept = 0;
  for (std::size_t at = 0; at < word.size(); ++kept) {
    if (at + 1 == word.size() || word[at] != pair.first || word[at + 1] != pair.second) {
      word[kept] = word[at++];
      continue;
    }
    if (kept > 0) {
      change({word[kept - 1], pair.first}, -1);
      change({word[kept - 1], joined}, 1);
    }
    at += 2;
    if (at < word.size()) {
      change({pair.second, word[at]}, -1);
      change({joined, word[at]}, 1);
    }
    word[kept] = joined;
  }
  word.resize(kept);
}

class Learner {
 public:
  explicit Learner(const WordCounts& words) {
    begin_vocabulary();
    std::vector<const WordCounts::value_type*> sorted;  // so that the order of words is no one's choice
    for (const auto& each : words) sorted.push_back(&each);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* each : sorted) {
      Word word{{}, each->second};
      for (const char c : each->first) word.tokens.push_back(numbers_.at(std::string(1, c)));
      words_.push_back(std::move(word));
    }
    std::unordered_map<Pair, Places, PairHash> found;
    for (std::uint32_t i = 0; i < words_.size(); ++i)
      for (std::size_t at = 1; at < words_[i].tokens.size(); ++at)
        count({words_[i].tokens[at - 1], words_[i].tokens[at]}, words_[i].count, i, found);
    offer(found);
  }

  LearnedPairs learn(std::int64_t vocabulary, const std::function<void(std::int64_t)>& on_token) {
    while (static_cast<std::int64_t>(learned_.tokens.size()) < vocabulary && !candidates_.empty()) {
      CountedPair best = take();
      if (const std::int64_t now = counts_.at(best.pair); now != best.count) {
        best.count = now;
        put(std::move(best));
        continue;
      }
      if (best.count < 1) break;
      merge(best);
      if (on_token && learned_.merges.size() % 256 == 0)
        on_token(static_cast<std::int64_t>(learned_.tokens.size()));
    }
    keep_last_of_equal_merges();
    return std::move(learned_);
  }

 private:
  /// Bytes are numbered by their visible characters, as tokenizers does.
  void begin_vocabulary() {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    std::sort(bytes.begin(), bytes.end(),
              [](const std::string& a, const std::string& b) { return visible_bytes(a) < visible_bytes(b); });
    number_of(kEndOfText);
    for (const std::string& byte : bytes) number_of(byte);
  }

  /// Of `token`, which is new or was made of other neighbours before.
  std::int32_t number_of(const std::string& token) {
    const auto [at, is_new] = numbers_.try_emplace(token, static_cast<std::int32_t>(learned_.tokens.size()));
    if (is_new) learned_.tokens.push_back(token);
    return at->second;
  }

  void count(Pair pair, std::int64_t by, std::uint32_t word,
             std::unordered_map<Pair, Places, PairHash>& found) {
    counts_[pair] += by;
    if (by < 0) return;
    Places& places = found[pair];
    if (places.empty() || places.back() != word) places.push_back(word);
  }

  void merge(const CountedPair& best) {
    const auto [left, right] = best.pair;
    const std::int32_t joined = number_of(learned_.tokens[static_cast<std::size_t>(left)] +
                                          learned_.tokens[static_cast<std::size_t>(right)]);
    learned_.merges.push_back(best.pair);
    std::unordered_map<Pair, Places, PairHash> found;
    for (const std::uint32_t i : best.words)
      join(words_[i].tokens, best.pair, joined,
           [&](Pair pair, int by) { count(pair, by * words_[i].count, i, found); });
    offer(found);
  }

  void offer(std::unordered_map<Pair, Places, PairHash>& found) {
    for (auto& [pair, places] : found)
      if (const std::int64_t now = counts_.at(pair); now > 0) put({now, pair, std::move(places)});
  }
  void put(CountedPair candidate) {
    candidates_.push_back(std::move(candidate));
    std::push_heap(candidates_.begin(), candidates_.end(), less);
  }
  CountedPair take() {
    std::pop_heap(candidates_.begin(), candidates_.end(), less);
    CountedPair top = std::move(candidates_.back());
    candidates_.pop_back();
    return top;
  }

  /// A pair that came up twice was joined twice: a file's rules have it once.
  void keep_last_of_equal_merges() {
    std::unordered_map<Pair, std::size_t, PairHash> last;
    for (std::size_t i = 0; i < learned_.merges.size(); ++i) last[learned_.merges[i]] = i;
    std::vector<Pair> kept;
    for (std::size_t i = 0; i < learned_.merges.size(); ++i)
      if (last[learned_.merges[i]] == i) kept.push_back(learned_.merges[i]);
    learned_.merges = std::move(kept);
  }

  LearnedPairs learned_;
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::vector<CountedPair> candidates_;  ///< a heap
};

}  // namespace

LearnedPairs learn_pairs(const WordCounts& words, std::int64_t vocabulary,
                         const std::function<void(std::int64_t)>& on_token) {
  if (vocabulary < kLeastVocabulary)
    throw UsageError(
        fmt::format("training a tokenizer: expected at least {} tokens (256 bytes and {}), got {}",
                    kLeastVocabulary, kEndOfText, vocabulary));
  return Learner(words).learn(vocabulary, on_token);
}

}  // namespace dtrain
