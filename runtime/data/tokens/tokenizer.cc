#include "runtime/data/tokens/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/tokens/bert_text.h"

namespace dtrain {
namespace {

/// As FNV-1a, but eight bytes at a time: not against forgery, against mistakes.
class Hash {
 public:
  void add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 32U;
  }
  void add(std::string_view text) noexcept {
    add(text.size());
    for (std::size_t at = 0; at < text.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
      add(word);
    }
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t hash_of(const TokenizerSpec& parts) {
  Hash hash;
  for (const std::string& token : parts.tokens) hash.add(token);
  for (const Merge& merge : parts.merges) {
    hash.add(static_cast<std::uint64_t>(merge.left) << 32U | static_cast<std::uint32_t>(merge.right));
    hash.add(merge.rank);
  }
  for (const AddedToken& token : parts.added) {
    hash.add(token.content);
    hash.add(static_cast<std::uint64_t>(token.id));
  }
  hash.add(parts.rules);
  return hash.value();
}

ByteTokens byte_tokens(const TokenizerSpec& parts) {
  ByteTokens bytes;
  bytes.fill(-1);
  if (parts.word_pieces) return bytes;
  std::vector<bool> added(parts.tokens.size());
  for (const AddedToken& token : parts.added)
    if (static_cast<std::size_t>(token.id) < added.size()) added[static_cast<std::size_t>(token.id)] = true;
  for (std::size_t id = parts.tokens.size(); id-- > 0;)
    if (parts.tokens[id].size() == 1 && !added[id])
      bytes[static_cast<unsigned char>(parts.tokens[id][0])] = static_cast<std::int32_t>(id);
  for (unsigned byte = 0; byte < 0xf5; ++byte) {
    const bool is_last = !parts.last_bytes || (*parts.last_bytes)[byte] >= 0;
    if ((bytes[byte] >= 0 && is_last) || byte == 0xc0 || byte == 0xc1) continue;
    throw UsageError(fmt::format("tokenizer {}: expected a token for each byte, got none for 0x{:02x}{}",
                                 parts.name, byte, bytes[byte] >= 0 ? " at the end of a word" : ""));
  }
  return bytes;
}

BytePairs byte_pairs(const TokenizerSpec& parts) {
  const ByteTokens bytes = byte_tokens(parts);
  return {bytes, parts.last_bytes.value_or(bytes), parts.merges};
}

std::vector<AddedToken> chosen(const std::vector<AddedToken>& all, bool normalized, bool specials) {
  std::vector<AddedToken> some;
  for (const AddedToken& token : all) {
    if (token.normalized != normalized || (token.special && !specials)) continue;
    some.push_back(token);
  }
  return some;
}

std::string normalized_text(std::string_view text, const std::vector<Normalization>& normalizations) {
  std::string result(text);
  for (const Normalization normalization : normalizations) {
    switch (normalization) {
      case Normalization::lowercase:
        result = bert::lowercase(result);
        break;
      case Normalization::clean:
        result = bert::clean(result);
        break;
      case Normalization::space_ideographs:
        result = bert::space_ideographs(result);
        break;
      case Normalization::strip_accents:
        result = bert::without_accents(result);
        break;
      case Normalization::one_space:
        result = bert::with_one_space(result);
        break;
      default:
        result = normalize(result, normalization);
    }
  }
  return result;
}

TokenizerSpec prepared(TokenizerSpec parts) {
  const auto outside = [&](std::int32_t id) {
    return id < 0 || static_cast<std::size_t>(id) >= parts.tokens.size();
  };
  for (AddedToken& token : parts.added) {
    if (outside(token.id)) {
      throw UsageError(fmt::format("tokenizer {}: expected the number of \"{}\" below {}, got {}", parts.name,
                                   token.content, parts.tokens.size(), token.id));
    }
    if (token.normalized) token.content = normalized_text(token.content, parts.normalizations);
  }
  return parts;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec parts)
    : parts_(prepared(std::move(parts))),
      pairs_(byte_pairs(parts_)),
      raw_(chosen(parts_.added, false, true)),
      raw_plain_(chosen(parts_.added, false, false)),
      normalized_(chosen(parts_.added, true, true)),
      normalized_plain_(chosen(parts_.added, true, false)),
      hash_(hash_of(parts_)) {
  if (parts_.word_pieces) pieces_.emplace(*parts_.word_pieces, parts_.tokens, parts_.name);
  if (parts_.whole_words) words_ = VocabularyWords(parts_.tokens, parts_.added);
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& token : parts_.added)
    if (token.content == content) return token.id;
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  for (const char* const name : {"<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<EOT>",
                                 "<|end▁of▁sentence|>", "</s>", "[SEP]"})
    if (const auto id = added_token(name)) return id;
  return std::nullopt;
}

bool Tokenizer::cuts_at_lines() const noexcept {
  const bool words =
      std::all_of(parts_.stages.begin(), parts_.stages.end(), [](const PreTokenizerStage& stage) {
        return !stage.space_in_front && stage.cut && stage.cut->cuts_at_lines();
      });
  const bool added = std::any_of(parts_.added.begin(), parts_.added.end(), [](const AddedToken& token) {
    return token.right_strip || token.content.find('\n') != std::string::npos;
  });
  return words && !added;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocabulary() || parts_.tokens[static_cast<std::size_t>(token)].empty()) {
      throw UsageError(fmt::format("decode: expected tokens of {} (vocabulary {}), got {}", parts_.name,
                                   vocabulary(), token));
    }
    const std::string& bytes = parts_.tokens[static_cast<std::size_t>(token)];
    pieces_ ? pieces_->append(bytes, text) : static_cast<void>(text += bytes);
  }
  return text;
}

Encoder::Encoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& tokens, SpecialTokens specials) {
  if (const std::size_t valid = valid_utf8(text); valid < text.size()) {
    throw UsageError(fmt::format("encode: expected UTF-8, got the byte 0x{:02x} at offset {}",
                                 static_cast<unsigned char>(text[valid]), valid));
  }
  tokens_ = &tokens;
  const bool parsed = specials == SpecialTokens::parsed;
  const AddedTokenSearch& search = parsed ? tokenizer_->raw_ : tokenizer_->raw_plain_;
  std::size_t done = 0;
  for (auto found = search.next(text, 0); found; found = search.next(text, found->end)) {
    const auto token = settled(*found, text, done);
    if (!token) continue;
    encode_between(text.substr(done, token->begin - done), parsed);
    tokens.push_back(token->token->id);
    done = token->end;
  }
  encode_between(text.substr(done), parsed);
}

void Encoder::encode_between(std::string_view text, bool parsed) {
  if (text.empty()) return;
  std::string normalized;
  if (const auto& normalizations = tokenizer_->parts_.normalizations; !normalizations.empty()) {
    normalized = normalized_text(text, normalizations);
    text = normalized;
  }
  const AddedTokenSearch& search = parsed ? tokenizer_->normalized_ : tokenizer_->normalized_plain_;
  std::size_t done = 0;
  for (auto found = search.next(text, 0); found; found = search.next(text, found->end)) {
    const auto token = settled(*found, text, done);
    if (!token) continue;
    cut(text.substr(done, token->begin - done), 0);
    tokens_->push_back(token->token->id);
    done = token->end;
  }
  cut(text.substr(done), 0);
}

void Encoder::cut(std::string_view text, std::size_t stage) {
  if (text.empty()) return;
  const auto& stages = tokenizer_->parts_.stages;
  if (stage == stages.size()) return encode_word(text);
  std::string spaced;
  if (stages[stage].space_in_front && text[0] != ' ') {
    spaced = " ";
    spaced += text;
    text = spaced;
  }
  const PreTokenizer* const cutter = stages[stage].cut.get();
  if (cutter == nullptr) return cut(text, stage + 1);
  const bool last = stage + 1 == stages.size();
  for (std::size_t at = 0; at < text.size();) {
    const WordEnd word = cutter->next(text, at);
    if (word.kept) {
      const std::string_view found = text.substr(at, word.end - at);
      last ? encode_word(found) : cut(found, stage + 1);
    }
    at = word.end;
  }
}

void Encoder::encode_word(std::string_view word) {
  const WordKey key(word);
  if (word.size() > WordCache::kMostBytes) return encode_new_word(word, key);
  if (const auto known = cache_.find(key, word.size()); !known.empty()) {
    if (known.size() == 1) return tokens_->push_back(known.front());
    tokens_->insert(tokens_->end(), known.begin(), known.end());
    return;
  }
  const std::size_t before = tokens_->size();
  encode_new_word(word, key);
  cache_.put(key, word.size(), std::span(*tokens_).subspan(before));
}

void Encoder::encode_new_word(std::string_view word, const WordKey& key) {
  const auto& parts = tokenizer_->parts_;
  if (tokenizer_->pieces_) return tokenizer_->pieces_->encode(word, *tokens_);
  if (parts.whole_words) {
    if (const std::int32_t token = tokenizer_->words_.find(word, key, parts.tokens); token >= 0)
      return tokens_->push_back(token);
  }
  tokenizer_->pairs_.encode(word, *tokens_);
}

}  // namespace dtrain
