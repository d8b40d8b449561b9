// A tokenizer.json with a vocabulary of 256 bytes and a few words.
#pragma once

#include <string>
#include <vector>

namespace dtrain::test {

/// What a test changes of the file.
struct SmallTokenizer {
  /// Rules on visible characters, in order: each adds the token that it makes; numbers continue from 256.
  std::vector<std::pair<std::string, std::string>> merges = {{"h", "e"},    {"l", "l"},     {"he", "ll"},
                                                             {"hell", "o"}, {"Ġ", "w"},     {"o", "r"},
                                                             {"Ġw", "or"},  {"Ġwor", "ld"}, {"l", "d"}};
  /// "</w>": bytes that end a word are tokens of their own, 256 to 511, and merges continue from there.
  std::string word_end = "";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string model_extra = "";  ///< ", \"ignore_merges\": true"
  /// Objects, numbers from 300 on.
  std::string added = R"({"id": 300, "content": "<|endoftext|>", "special": true, "normalized": false})";
};

/// The file's text. Rules that use a token which a later rule makes are moved by nobody: name such tokens in
/// order.
std::string tokenizer_json(const SmallTokenizer& tokenizer);

}  // namespace dtrain::test
