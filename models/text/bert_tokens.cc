#include "models/text/bert_tokens.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/error.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Numbers = std::map<std::string, std::int64_t>;

constexpr int kTokenizerDepth = 32;
constexpr std::int64_t kPublishedVocabulary = 30522;
constexpr std::array<std::pair<const char*, const char*>, 3> kConfigKeys = {
    {{"[CLS]", "cls_token_id"}, {"[SEP]", "sep_token_id"}, {"[MASK]", "mask_token_id"}}};
constexpr std::int64_t kMultiple = 8;  // so that ranks can split a vocabulary that is made here

std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError(path.string(), -1, "a file that can be read", "none");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A word a line, in the order of their numbers.
Numbers read_vocabulary(const fs::path& path) {
  std::ifstream in(path);
  Numbers numbers;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line); ++number) {
    if (line.starts_with("[")) numbers.emplace(line, number);
  }
  return numbers;
}

Numbers read_added_tokens(const fs::path& path) {
  const auto json = parse_strict_json(read_whole(path), path, 0, kTokenizerDepth);
  const auto added = json.is_object() ? json.find("added_tokens") : json.end();
  if (!json.is_object() || added == json.end() || !added->is_array())
    throw DataError(path.string(), -1, "a tokenizer with a list of added_tokens", "none");
  Numbers numbers;
  for (const auto& token : *added) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string() ||
        !token.contains("id") || !token["id"].is_number_integer())
      throw DataError(path.string(), -1, "added_tokens with content and id", token.dump());
    numbers.emplace(token["content"].get<std::string>(), token["id"].get<std::int64_t>());
  }
  return numbers;
}

/// What config_with() wrote.
Numbers read_config(const std::string& text) {
  Numbers numbers;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  for (const auto& [token, key] : kConfigKeys) {
    if (json.is_object() && json.contains(key) && json[key].is_number_integer())
      numbers.emplace(token, json[key].get<std::int64_t>());
  }
  return numbers;
}

std::int32_t number_of(const Numbers& numbers, const char* token, const fs::path& path,
                       std::int64_t vocabulary) {
  const auto found = numbers.find(token);
  if (found == numbers.end()) throw DataError(path.string(), -1, fmt::format("a token {}", token), "none");
  if (found->second < 0 || found->second >= vocabulary) {
    throw DataError(path.string(), -1,
                    fmt::format("a number of {} below the model's vocabulary of {}", token, vocabulary),
                    std::to_string(found->second));
  }
  return static_cast<std::int32_t>(found->second);
}

BertTokens of_file(const Numbers& numbers, const fs::path& path, std::int64_t vocabulary) {
  return {.first = number_of(numbers, "[CLS]", path, vocabulary),
          .separator = number_of(numbers, "[SEP]", path, vocabulary),
          .mask = number_of(numbers, "[MASK]", path, vocabulary),
          .vocabulary = vocabulary};
}

}  // namespace

BertTokens bert_tokens(const TextModel& model, std::int64_t words) {
  const std::int64_t vocabulary = model.shape.vocabulary;
  if (vocabulary == 0) {
    const auto next = static_cast<std::int32_t>(words);
    return {.first = next,
            .separator = next + 1,
            .mask = next + 2,
            .vocabulary = (words + 3 + kMultiple - 1) / kMultiple * kMultiple};
  }
  if (words > vocabulary) {
    throw UsageError(fmt::format("{}: expected samples of tokens below {}, got tokens below {}", model.name,
                                 vocabulary, words));
  }
  for (const auto& [name, read] :
       {std::pair{"tokenizer.json", &read_added_tokens}, {"vocab.txt", &read_vocabulary}}) {
    const fs::path path = model.folder / name;
    if (!model.folder.empty() && fs::exists(path)) return of_file(read(path), path, vocabulary);
  }
  const Numbers in_config = read_config(model.config);
  if (!in_config.empty()) return of_file(in_config, model.folder / "config.json", vocabulary);
  if (vocabulary == kPublishedVocabulary) return {101, 102, 103, vocabulary};
  throw UsageError(
      fmt::format("{}: expected tokenizer.json or vocab.txt next to its config.json, to give the numbers of "
                  "[CLS], [SEP] and [MASK], got neither",
                  model.name));
}

std::string config_with(const std::string& config, const BertTokens& tokens) {
  auto json = nlohmann::ordered_json::parse(config);
  const std::array numbers = {tokens.first, tokens.separator, tokens.mask};
  for (std::size_t i = 0; i < numbers.size(); ++i) json[kConfigKeys[i].second] = numbers[i];
  return json.dump(2) + "\n";
}

}  // namespace dtrain
