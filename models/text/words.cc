#include "models/text/words.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Tokens = std::vector<std::int32_t>;

}  // namespace

std::string tokenizer_in(const std::string& dataset, const std::filesystem::path& folder) {
  constexpr std::string_view kKey = ",tokenizer=";
  const auto at = dataset.find(kKey);
  if (at == std::string::npos) return "";
  const auto begin = at + kKey.size();
  return (folder / dataset.substr(begin, dataset.find(',', begin) - begin)).string();
}

Words::Words(const std::string& path, std::int64_t vocabulary) {
  if (!path.empty()) tokenizer_ = open_tokenizer(path);
  const std::int64_t own = tokenizer_ ? tokenizer_->vocabulary() : 256;
  if (own > vocabulary || (!tokenizer_ && vocabulary > 256)) {
    throw UsageError(fmt::format("tokenizer: expected one of at most {} tokens, as the model has, got {}",
                                 vocabulary, tokenizer_ ? fmt::format("{} with {}", path, own) : "none"));
  }
}

Tokens Words::encode(const std::string& text) const {
  Tokens tokens;
  if (tokenizer_) {
    Encoder(tokenizer_).encode(text, tokens, SpecialTokens::parsed);
  } else {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
  return tokens;
}

std::string Words::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (!tokenizer_) text += static_cast<char>(token);
    if (tokenizer_ && token < tokenizer_->vocabulary()) text += tokenizer_->decode({&token, 1});
  }
  return text;
}

}  // namespace dtrain
