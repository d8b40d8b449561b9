// Words whose tokens are known: found by all of their bytes, whatever their ends have in common.
#include "runtime/data/tokens/known_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(VocabularyWords, AreFoundByAllOfTheirBytes) {
  std::vector<std::string> tokens = {"<end>", "", "a", "b", "ab", "a", std::string(1, '\0')};
  for (int length = 2; length < 40; ++length) {
    tokens.emplace_back(static_cast<std::size_t>(length), '-');
    for (int at = 0; at < length; ++at) {
      tokens.emplace_back(static_cast<std::size_t>(length), 'x');
      tokens.back()[static_cast<std::size_t>(at)] = 'y';
    }
  }
  const std::vector<AddedToken> added = {{.id = 0, .content = "<end>"}};
  const VocabularyWords words(tokens, added);
  const auto find = [&](std::string_view word) { return words.find(word, WordKey(word), tokens); };
  for (std::size_t id = 2; id < tokens.size(); ++id) {
    if (id != 5) {
      EXPECT_EQ(find(tokens[id]), static_cast<std::int32_t>(id)) << tokens[id];
    }
    EXPECT_EQ(find(tokens[id] + "?"), -1);
  }
  EXPECT_EQ(find("<end>"), -1);
  EXPECT_EQ(find("a"), 2);
}

TEST(WordCache, HasWhatWasPutAndNothingElse) {
  const auto word_of = [](int i) { return std::to_string(i * 7919) + std::string(i % 9, 'w'); };
  const auto tokens_of = [](int i) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(1 + i % 3), i);
  };
  WordCache cache;
  int kept = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string word = word_of(i);
    const WordKey key(word);
    EXPECT_THAT(cache.find(key, word.size()), IsEmpty());
    cache.put(key, word.size(), tokens_of(i));
    EXPECT_THAT(cache.find(key, word.size()), testing::ElementsAreArray(tokens_of(i)));
  }
  for (int i = 0; i < 200'000; ++i) {
    const std::string word = word_of(i);
    const auto found = cache.find(WordKey(word), word.size());
    if (found.empty()) continue;
    ++kept;
    ASSERT_THAT(found, testing::ElementsAreArray(tokens_of(i)));
  }
  EXPECT_GT(kept, 40'000);
  const std::string many = "many";
  cache.put(WordKey(many), many.size(), std::vector<std::int32_t>{1, 2, 3, 4});
  EXPECT_THAT(cache.find(WordKey(many), many.size()), IsEmpty());
}

TEST(WordCache, AWordThatCameAgainOutlivesThoseThatCameOnce) {
  WordCache cache;
  const std::string often = "often";
  const std::vector<std::int32_t> one = {1};
  cache.put(WordKey(often), often.size(), one);
  EXPECT_THAT(cache.find(WordKey(often), often.size()), ElementsAre(1));
  for (int i = 0; i < 500'000; ++i) {
    const std::string word = std::to_string(i);
    const WordKey key(word);
    if (cache.find(key, word.size()).empty()) cache.put(key, word.size(), one);
  }
  EXPECT_THAT(cache.find(WordKey(often), often.size()), ElementsAre(1));
}

}  // namespace
}  // namespace dtrain
