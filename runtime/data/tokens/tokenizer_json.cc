// tokenizer.json as Hugging Face's tokenizers writes it, as far as it describes byte-level BPE or BERT's
// WordPiece; any part that is not known is refused by its name, as ignoring it would give other tokens.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/data/tokens/bert_text.h"
#include "runtime/data/tokens/patterns.h"
#include "runtime/data/tokens/tokenizer_files.h"

namespace dtrain {
namespace {

using Json = nlohmann::json;
using Numbers = std::unordered_map<std::string_view, std::int32_t>;

constexpr std::int64_t kMostTokens = 1 << 24;

Json parse(std::string_view content, const std::string& path) {
  try {
    return Json::parse(content);
  } catch (const Json::parse_error& error) {
    throw DataError(path, static_cast<std::int64_t>(error.byte), "JSON", error.what());
  }
}

/// Parts of one file, refused by their place in it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  [[noreturn]] void refuse(std::string_view where, std::string_view expected, std::string_view found) const {
    throw DataError(path_, -1, fmt::format("{} in {}", expected, where), std::string(found));
  }
  [[noreturn]] void refuse_value(std::string_view where, std::string_view expected, const Json& found) const {
    std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 200) text = text.substr(0, 200) + "…";
    refuse(where, expected, std::string_view(text));
  }
  /// The member `key`; null where it is missing.
  static const Json& member(const Json& object, const char* key) {
    static const Json null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }
  bool flag(const Json& object, const char* key, bool missing) const {
    const Json& value = member(object, key);
    if (value.is_null()) return missing;
    if (!value.is_boolean()) refuse_value(key, "true or false", value);
    return value.get<bool>();
  }
  const std::string& text(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_string()) refuse_value(key, "a string", value);
    return value.get_ref<const std::string&>();
  }
  std::int32_t number(const Json& value, std::string_view where) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMostTokens)
      refuse_value(where, fmt::format("a token's number below {}", kMostTokens), value);
    return value.get<std::int32_t>();
  }

 private:
  const std::string& path_;
};

void put(TokenizerSpec& parts, std::int32_t id, std::string token) {
  const auto at = static_cast<std::size_t>(id);
  if (parts.tokens.size() <= at) parts.tokens.resize(at + 1);
  parts.tokens[at] = std::move(token);
}

/// Adds the tokens; `bytes_of` tells what bytes one stands for by the way it is written.
template <class BytesOf>
Numbers read_vocabulary(const Json& vocabulary, const Reader& reader, TokenizerSpec& parts,
                        BytesOf bytes_of) {
  if (!vocabulary.is_object() || vocabulary.empty())
    reader.refuse("vocab", "tokens and their numbers", "none");
  Numbers numbers;
  numbers.reserve(vocabulary.size());
  parts.tokens.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    const std::int32_t number = reader.number(id, "vocab");
    if (static_cast<std::size_t>(number) < parts.tokens.size() &&
        !parts.tokens[static_cast<std::size_t>(number)].empty())
      reader.refuse("vocab", "a number once", fmt::format("{} for \"{}\" too", number, token));
    put(parts, number, bytes_of(token));
    numbers.emplace(token, number);
  }
  return numbers;
}

/// Adds the rule that joins `left` and `right`.
void put_merge(std::string_view left, std::string_view right, const Numbers& numbers, const Reader& reader,
               TokenizerSpec& parts) {
  const auto number = [&](std::string_view token) {
    const auto found = numbers.find(token);
    if (found == numbers.end())
      reader.refuse(fmt::format("merges, rule {}", parts.merges.size()), "tokens of the vocabulary", token);
    return found->second;
  };
  const std::string joined = fmt::format("{}{}", left, right);
  parts.merges.push_back(
      {number(left), number(right), number(joined), static_cast<std::uint32_t>(parts.merges.size())});
}

/// "a b"
void put_merge(std::string_view rule, const Numbers& numbers, const Reader& reader, TokenizerSpec& parts) {
  const std::size_t space = rule.find(' ');
  if (space == std::string_view::npos || rule.find(' ', space + 1) != std::string_view::npos)
    reader.refuse(fmt::format("merges, rule {}", parts.merges.size()), "two tokens with a space between",
                  rule);
  put_merge(rule.substr(0, space), rule.substr(space + 1), numbers, reader, parts);
}

void read_merges(const Json& merges, const Numbers& numbers, const Reader& reader, TokenizerSpec& parts) {
  if (!merges.is_array()) reader.refuse_value("model", "merges, an array", merges);
  parts.merges.reserve(merges.size());
  for (const Json& rule : merges) {
    if (rule.is_string()) {
      put_merge(rule.get_ref<const std::string&>(), numbers, reader, parts);
    } else if (rule.is_array() && rule.size() == 2 && rule[0].is_string() && rule[1].is_string()) {
      put_merge(rule[0].get_ref<const std::string&>(), rule[1].get_ref<const std::string&>(), numbers, reader,
                parts);
    } else {
      reader.refuse_value("merges", "a rule of two tokens", rule);
    }
  }
}

void read_word_pieces(const Json& model, const Json& decoder, const Reader& reader, TokenizerSpec& parts) {
  WordPieceRule rule{.unknown = reader.text(model, "unk_token")};
  if (!Reader::member(model, "continuing_subword_prefix").is_null())
    rule.prefix = reader.text(model, "continuing_subword_prefix");
  if (const Json& most = Reader::member(model, "max_input_chars_per_word"); !most.is_null())
    rule.most_characters = reader.number(most, "max_input_chars_per_word");
  if (decoder.is_object()) rule.cleans_up = reader.flag(decoder, "cleanup", true);
  read_vocabulary(Reader::member(model, "vocab"), reader, parts,
                  [](const std::string& token) { return token; });
  parts.rules += fmt::format("WordPiece {} {} {};", rule.prefix, rule.unknown, rule.most_characters);
  parts.word_pieces = std::move(rule);
}

/// Tokens that end a word are written with `suffix` ("a</w>"); their text ends with a space. Notes those of
/// single bytes.
Numbers read_vocabulary_with_ends(const Json& vocabulary, const std::string& suffix, const Reader& reader,
                                  TokenizerSpec& parts) {
  const auto ends = [&](std::string_view token) {
    return token.size() > suffix.size() && token.ends_with(suffix);
  };
  Numbers numbers = read_vocabulary(vocabulary, reader, parts, [&](const std::string& token) {
    if (!ends(token)) return bytes_of_visible(token);
    return bytes_of_visible(std::string_view(token).substr(0, token.size() - suffix.size())) + ' ';
  });
  parts.last_bytes.emplace().fill(-1);
  for (const auto& [token, number] : numbers) {
    const std::string& bytes = parts.tokens[static_cast<std::size_t>(number)];
    if (ends(token) && bytes.size() == 2) (*parts.last_bytes)[static_cast<unsigned char>(bytes[0])] = number;
  }
  parts.rules += fmt::format("ends with {};", suffix);
  return numbers;
}

void read_model(const Json& model, const Json& decoder, const Reader& reader, TokenizerSpec& parts) {
  // Files from before there were other kinds do not name theirs.
  const std::string type = model.is_object() ? model.value("type", "BPE") : "none";
  if (type == "WordPiece") return read_word_pieces(model, decoder, reader, parts);
  if (type != "BPE") reader.refuse("model", "type BPE or WordPiece", type);
  if (const Json& prefix = Reader::member(model, "continuing_subword_prefix");
      !prefix.is_null() && prefix != "")
    reader.refuse_value("model", "no continuing_subword_prefix", prefix);
  const Json& dropout = Reader::member(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) reader.refuse_value("model", "no dropout", dropout);
  parts.whole_words = reader.flag(model, "ignore_merges", false);
  const Json& suffix = Reader::member(model, "end_of_word_suffix");
  const bool has_ends = suffix.is_string() && suffix != "";
  const Json& vocabulary = Reader::member(model, "vocab");
  const Numbers numbers =
      has_ends ? read_vocabulary_with_ends(vocabulary, suffix.get_ref<const std::string&>(), reader, parts)
               : read_vocabulary(vocabulary, reader, parts, bytes_of_visible);
  read_merges(Reader::member(model, "merges"), numbers, reader, parts);
}

void read_normalizer(const Json& normalizer, const Reader& reader, TokenizerSpec& parts) {
  if (normalizer.is_null()) return;
  const std::string& type = reader.text(normalizer, "type");
  if (type == "Sequence") {
    for (const Json& each : Reader::member(normalizer, "normalizers")) read_normalizer(each, reader, parts);
    return;
  }
  const auto add = [&](Normalization normalization) {
    if (is_unicode_form(normalization)) check_can_normalize(normalization);
    parts.normalizations.push_back(normalization);
    parts.rules += fmt::format("{};", name_of(normalization));
  };
  if (type == "BertNormalizer") {
    const bool lowercase = reader.flag(normalizer, "lowercase", true);
    if (reader.flag(normalizer, "clean_text", true)) add(Normalization::clean);
    if (reader.flag(normalizer, "handle_chinese_chars", true)) add(Normalization::space_ideographs);
    if (reader.flag(normalizer, "strip_accents", lowercase)) {
      add(Normalization::nfd);
      add(Normalization::strip_accents);
    }
    if (lowercase) add(Normalization::lowercase);
    return;
  }
  if (type == "Lowercase") return add(Normalization::lowercase);
  if (type == "Replace") {
    const Json& pattern = Reader::member(normalizer, "pattern");
    if (pattern != Json{{"Regex", "\\s+"}} || reader.text(normalizer, "content") != " ")
      reader.refuse_value("normalizer, Replace", "the pattern \\s+ and a space for it", normalizer);
    return add(Normalization::one_space);
  }
  for (const auto known :
       {Normalization::nfc, Normalization::nfd, Normalization::nfkc, Normalization::nfkd}) {
    if (type == name_of(known)) return add(known);
  }
  reader.refuse("normalizer",
                "NFC, NFD, NFKC, NFKD, Lowercase, Replace, BertNormalizer or a Sequence of them", type);
}

void read_split(const Json& split, const Reader& reader, TokenizerSpec& parts) {
  const Json& pattern = Reader::member(split, "pattern");
  if (!pattern.is_object() || !Reader::member(pattern, "Regex").is_string())
    reader.refuse_value("pre_tokenizer, Split", "a pattern, {\"Regex\": …}", pattern);
  const std::string& behavior = reader.text(split, "behavior");
  const bool invert = reader.flag(split, "invert", false);
  if (behavior != "Isolated" && behavior != "Removed")
    reader.refuse("pre_tokenizer, Split", "behavior Isolated or Removed", behavior);
  const SplitBehavior wanted = behavior == "Isolated" ? SplitBehavior::isolated
                               : invert               ? SplitBehavior::matches
                                                      : SplitBehavior::removed;
  const std::string& regex = reader.text(pattern, "Regex");
  parts.stages.push_back({make_pre_tokenizer(regex, wanted, PatternDialect::tokenizers)});
  parts.rules += fmt::format("{} {};", behavior, regex);
}

void read_pre_tokenizer(const Json& pre_tokenizer, const Reader& reader, TokenizerSpec& parts, bool& bytes) {
  if (pre_tokenizer.is_null()) return;
  const std::string& type = reader.text(pre_tokenizer, "type");
  if (type == "Sequence") {
    for (const Json& each : Reader::member(pre_tokenizer, "pretokenizers"))
      read_pre_tokenizer(each, reader, parts, bytes);
  } else if (type == "BertPreTokenizer" && !bytes) {
    parts.stages.push_back({bert::make_pre_tokenizer()});
    parts.rules += "BertPreTokenizer;";
  } else if (type == "Split" && !bytes) {
    read_split(pre_tokenizer, reader, parts);
  } else if (type == "ByteLevel" && !bytes) {
    bytes = true;
    PreTokenizerStage stage{nullptr, reader.flag(pre_tokenizer, "add_prefix_space", true)};
    if (reader.flag(pre_tokenizer, "use_regex", true)) {
      stage.cut =
          make_pre_tokenizer(patterns::kByteLevel, SplitBehavior::isolated, PatternDialect::tokenizers);
      parts.rules += "Isolated ByteLevel;";
    }
    if (stage.space_in_front) parts.rules += "space;";
    if (stage.cut || stage.space_in_front) parts.stages.push_back(stage);
  } else {
    reader.refuse("pre_tokenizer", "Split, and ByteLevel last, or BertPreTokenizer", type);
  }
}

void read_added(const Json& added, const Reader& reader, TokenizerSpec& parts) {
  if (added.is_null()) return;
  if (!added.is_array()) reader.refuse_value("added_tokens", "an array", added);
  for (const Json& each : added) {
    AddedToken token;
    token.id = reader.number(Reader::member(each, "id"), "added_tokens");
    token.content = reader.text(each, "content");
    token.special = reader.flag(each, "special", false);
    token.left_strip = reader.flag(each, "lstrip", false);
    token.right_strip = reader.flag(each, "rstrip", false);
    token.single_word = reader.flag(each, "single_word", false);
    token.normalized = reader.flag(each, "normalized", !token.special);
    put(parts, token.id, token.content);
    parts.added.push_back(std::move(token));
  }
}

}  // namespace

TokenizerSpec read_tokenizer_json(std::string_view content, const std::string& path) {
  const Json file = parse(content, path);
  const Reader reader(path);
  if (!file.is_object()) reader.refuse_value("the file", "an object", file);
  TokenizerSpec parts;
  parts.name = path;
  read_model(Reader::member(file, "model"), Reader::member(file, "decoder"), reader, parts);
  read_normalizer(Reader::member(file, "normalizer"), reader, parts);
  bool bytes = false;
  read_pre_tokenizer(Reader::member(file, "pre_tokenizer"), reader, parts, bytes);
  if (bytes == parts.word_pieces.has_value())
    reader.refuse("pre_tokenizer", bytes ? "no ByteLevel before a WordPiece" : "ByteLevel (a byte-level BPE)",
                  bytes ? "one" : "none");
  read_added(Reader::member(file, "added_tokens"), reader, parts);
  return parts;
}

TokenizerSpec read_vocab_and_merges(std::string_view vocab, const std::string& vocab_path,
                                    std::string_view merges, const std::string& merges_path) {
  TokenizerSpec parts;
  parts.name = vocab_path;
  const Json vocabulary = parse(vocab, vocab_path);
  const Numbers numbers = read_vocabulary(vocabulary, Reader(vocab_path), parts, bytes_of_visible);
  const Reader reader(merges_path);
  for (std::size_t at = 0; at < merges.size();) {
    const std::size_t end = std::min(merges.find('\n', at), merges.size());
    std::string_view rule = merges.substr(at, end - at);
    if (!rule.empty() && rule.back() == '\r') rule.remove_suffix(1);
    if (!rule.empty() && !(at == 0 && rule.starts_with("#version"))) put_merge(rule, numbers, reader, parts);
    at = end + 1;
  }
  parts.stages.push_back(
      {make_pre_tokenizer(patterns::kByteLevel, SplitBehavior::isolated, PatternDialect::tokenizers)});
  parts.rules = "Isolated ByteLevel;";
  if (const auto end = numbers.find("<|endoftext|>"); end != numbers.end())
    parts.added.push_back({.id = end->second, .content = "<|endoftext|>", .special = true});
  return parts;
}

}  // namespace dtrain
