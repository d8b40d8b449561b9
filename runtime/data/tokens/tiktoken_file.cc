// tiktoken's rank files. They hold tokens alone: the pattern that cuts text and the special tokens are in the
// program that reads them, so here too, for the encodings that were published.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/data/tokens/patterns.h"
#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain {
namespace {

struct Special {
  std::int32_t id;
  const char* content;
};

struct Encoding {
  const char* name;
  std::size_t ranks;
  const char* pattern;
  std::vector<Special> specials;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> known = {
      {"r50k_base (GPT-2)", 50256, patterns::kR50k, {{50256, "<|endoftext|>"}}},
      {"p50k_base", 50280, patterns::kR50k, {{50256, "<|endoftext|>"}}},
      {"cl100k_base",
       100256,
       patterns::kCl100k,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {"o200k_base", 199998, patterns::kO200k, {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
      {"LLaMA 3", 128000, patterns::kLlama3, {{128000, "<|begin_of_text|>"}, {128001, "<|end_of_text|>"}}},
      {"Qwen",
       151643,
       patterns::kQwen2,
       {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
  };
  return known;
}

/// The bytes that `text` stands for; empty where it is no base64.
std::string decode_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return {};
    bits = bits << 6U | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xffU);
  }
  return bytes;
}

using Ranks = std::unordered_map<std::string_view, std::int32_t>;

/// Fills in the tokens; ranks may have holes. Returns how many there are.
std::size_t read_ranks(std::string_view content, const std::string& path, TokenizerSpec& parts) {
  constexpr std::int32_t kMostRanks = 1 << 24;
  std::size_t count = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = content.substr(at, end - at);
    const std::size_t space = line.find(' ');
    std::int32_t rank = -1;
    std::string token;
    if (space != std::string_view::npos) {
      token = decode_base64(line.substr(0, space));
      const char* const last = line.data() + line.size() - (line.back() == '\r' ? 1 : 0);
      if (std::from_chars(line.data() + space + 1, last, rank).ptr != last) rank = -1;
    }
    if (!line.empty()) {
      if (token.empty() || rank < 0 || rank >= kMostRanks) {
        throw DataError(path, static_cast<std::int64_t>(at),
                        "a line of a token in base64, a space and its rank",
                        fmt::format("\"{}\"", line.substr(0, 40)));
      }
      if (parts.tokens.size() <= static_cast<std::size_t>(rank))
        parts.tokens.resize(static_cast<std::size_t>(rank) + 1);
      std::string& place = parts.tokens[static_cast<std::size_t>(rank)];
      if (!place.empty())
        throw DataError(path, static_cast<std::int64_t>(at), "each rank once", fmt::format("{} again", rank));
      place = std::move(token);
      ++count;
    }
    at = end + 1;
  }
  return count;
}

/// tiktoken joins any neighbours whose bytes together are a token, the lowest such token first.
void put_merges(TokenizerSpec& parts) {
  Ranks ranks;
  ranks.reserve(parts.tokens.size());
  for (std::size_t rank = 0; rank < parts.tokens.size(); ++rank)
    if (!parts.tokens[rank].empty()) ranks.emplace(parts.tokens[rank], static_cast<std::int32_t>(rank));
  for (std::size_t rank = 0; rank < parts.tokens.size(); ++rank) {
    const std::string_view token = parts.tokens[rank];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(token.substr(cut));
      if (right == ranks.end()) continue;
      parts.merges.push_back(
          {left->second, right->second, static_cast<std::int32_t>(rank), static_cast<std::uint32_t>(rank)});
    }
  }
}

}  // namespace

TokenizerSpec read_tiktoken(std::string_view content, const std::string& path) {
  TokenizerSpec parts;
  parts.name = path;
  const std::size_t count = read_ranks(content, path, parts);
  const auto& known = encodings();
  const auto encoding =
      std::find_if(known.begin(), known.end(), [&](const Encoding& each) { return each.ranks == count; });
  if (encoding == known.end()) {
    std::vector<std::string> names;
    for (const Encoding& each : known) names.push_back(fmt::format("{} ({})", each.name, each.ranks));
    throw DataError(path, -1,
                    fmt::format("the ranks of a published encoding, {}, as the file has no pattern",
                                fmt::join(names, ", ")),
                    fmt::format("{} ranks (convert it to tokenizer.json)", count));
  }
  put_merges(parts);
  parts.whole_words = true;
  parts.stages.push_back(
      {make_pre_tokenizer(encoding->pattern, SplitBehavior::matches, PatternDialect::tiktoken)});
  parts.rules = fmt::format("matches {};", encoding->pattern);
  for (const Special& special : encoding->specials) {
    const auto at = static_cast<std::size_t>(special.id);
    if (parts.tokens.size() <= at) parts.tokens.resize(at + 1);
    parts.tokens[at] = special.content;
    parts.added.push_back({.id = special.id, .content = special.content, .special = true});
  }
  return parts;
}

}  // namespace dtrain
