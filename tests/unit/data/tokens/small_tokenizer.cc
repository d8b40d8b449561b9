#include "tests/unit/data/tokens/small_tokenizer.h"

#include <fmt/format.h>

#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain::test {

namespace {

/// In JSON; visible bytes need no other escape.
std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') all += '\\';
    all += letter;
  }
  return all + "\"";
}

}  // namespace

std::string tokenizer_json(const SmallTokenizer& tokenizer) {
  std::string vocabulary, merges;
  int next = 0;
  const auto add = [&](const std::string& token) {
    vocabulary += fmt::format("{}{}: {}", next == 0 ? "" : ", ", quoted(token), next);
    ++next;
  };
  const auto add_bytes = [&](const std::string& end) {
    for (int byte = 0; byte < 256; ++byte) add(visible_bytes(std::string(1, static_cast<char>(byte))) + end);
  };
  add_bytes("");
  if (!tokenizer.word_end.empty()) add_bytes(tokenizer.word_end);
  for (const auto& [left, right] : tokenizer.merges) {
    merges += fmt::format("{}[{}, {}]", merges.empty() ? "" : ", ", quoted(left), quoted(right));
    add(left + right);
  }
  return fmt::format(
      R"({{"version": "1.0", "normalizer": {}, "pre_tokenizer": {}, "added_tokens": [{}],
          "model": {{"type": "BPE", "vocab": {{{}}}, "merges": [{}]{}{}}}}})",
      tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.added, vocabulary, merges,
      tokenizer.model_extra,
      tokenizer.word_end.empty() ? "" : fmt::format(R"(, "end_of_word_suffix": "{}")", tokenizer.word_end));
}

}  // namespace dtrain::test
