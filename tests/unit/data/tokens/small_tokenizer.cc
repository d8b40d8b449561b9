#include "tests/unit/data/tokens/small_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain::test {

std::string tokenizer_json(const SmallTokenizer& tokenizer) {
  nlohmann::json vocabulary = nlohmann::json::object(), merges = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[visible_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  int next = 256;
  for (const auto& [left, right] : tokenizer.merges) {
    merges.push_back({left, right});
    vocabulary[left + right] = next++;
  }
  return fmt::format(
      R"({{"version": "1.0", "normalizer": {}, "pre_tokenizer": {}, "added_tokens": [{}],
          "model": {{"type": "BPE", "vocab": {}, "merges": {}{}}}}})",
      tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.added, vocabulary.dump(), merges.dump(),
      tokenizer.model_extra);
}

}  // namespace dtrain::test
