// Text to token numbers and back, as the tokenizers that published models come with: byte pairs over UTF-8
// (Sennrich et al. 2016, Radford et al. 2019), and BERT's pieces of words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tokens/added_tokens.h"
#include "runtime/data/tokens/bpe.h"
#include "runtime/data/tokens/known_words.h"
#include "runtime/data/tokens/normalizer.h"
#include "runtime/data/tokens/pre_tokenizer.h"
#include "runtime/data/tokens/word_pieces.h"

namespace dtrain {

/// One cut of text into words.
struct PreTokenizerStage {
  std::shared_ptr<const PreTokenizer> cut = nullptr;  ///< null: text stays whole
  bool space_in_front = false;  ///< text that does not begin with a space gets one before it is cut
};

/// What a tokenizer is made of.
struct TokenizerSpec {
  std::string name;                 ///< for messages: its file
  std::vector<std::string> tokens;  ///< bytes of each by its number; empty: no token has it
  std::vector<Merge> merges;
  std::optional<ByteTokens> last_bytes;      ///< of a word, where they are tokens of their own (CLIP)
  std::optional<WordPieceRule> word_pieces;  ///< words are cut into pieces, not joined from bytes
  bool whole_words = false;  ///< a word that is a token is that token, whatever merges would give
  std::vector<AddedToken> added;
  std::vector<Normalization> normalizations;
  std::vector<PreTokenizerStage> stages;
  std::string rules;  ///< normalizations and patterns in words, so that those of others are told apart
};

/// Immutable and cheap to share; Encoder does the work.
class Tokenizer {
 public:
  /// Throws UsageError where a byte that UTF-8 uses is no token, or a number is outside the vocabulary.
  explicit Tokenizer(TokenizerSpec parts);

  const std::string& name() const noexcept { return parts_.name; }
  /// Numbers of tokens are below it.
  std::int64_t vocabulary() const noexcept { return static_cast<std::int64_t>(parts_.tokens.size()); }
  /// Tells it from others: the same for the same tokens, merges and rules, whatever the file's format.
  std::uint64_t hash() const noexcept { return hash_; }
  /// The number of an added token ("<|endoftext|>").
  std::optional<std::int32_t> added_token(std::string_view content) const;
  /// The token that ends documents, by the names that published tokenizers have for it.
  std::optional<std::int32_t> end_of_text() const;
  /// Whether a text that is cut between a letter of ASCII and the line feed behind it gives the same tokens,
  /// so that long ones need not be in memory whole.
  bool cuts_at_lines() const noexcept;
  /// The bytes that `tokens` stand for; UTF-8 where they end with a character. Throws UsageError for a number
  /// that is no token's.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  friend class Encoder;

  TokenizerSpec parts_;
  BytePairs pairs_;
  std::optional<WordPieces> pieces_;
  VocabularyWords words_;  ///< with whole_words only
  /// Searched for in the text as it comes, and in the normalized one; without those that are special.
  AddedTokenSearch raw_, raw_plain_, normalized_, normalized_plain_;
  std::uint64_t hash_ = 0;
};

/// What a text that has "<|endoftext|>" written in it means by that.
enum class SpecialTokens {
  as_text,  ///< the characters
  parsed,   ///< the token, as Hugging Face's tokenizers do by default
};

/// Encodes; keeps what it has seen of words, so that each thread has one of its own.
///
///     const auto tokenizer = dtrain::open_tokenizer("gpt2/tokenizer.json");
///     dtrain::Encoder encoder(tokenizer);
///     std::vector<std::int32_t> tokens;
///     encoder.encode("Hello, world", tokens);  // 15496, 11, 995
class Encoder {
 public:
  explicit Encoder(std::shared_ptr<const Tokenizer> tokenizer);

  /// Appends the tokens of `text`. Throws UsageError naming the offset of what is not UTF-8.
  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              SpecialTokens specials = SpecialTokens::as_text);
  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }

 private:
  void encode_between(std::string_view text, bool parsed);
  void cut(std::string_view text, std::size_t stage);
  void encode_word(std::string_view word);
  void encode_new_word(std::string_view word, const WordKey& key);

  std::shared_ptr<const Tokenizer> tokenizer_;
  WordCache cache_;
  std::vector<std::int32_t>* tokens_ = nullptr;  ///< of the call
};

/// Reads tokenizer.json (Hugging Face), *.tiktoken (ranks; of a published encoding, told by their number), or
/// a folder with tokenizer.json or GPT-2's vocab.json and merges.txt. Throws DataError (path, offset,
/// expected, found) for what is none of them or is neither a byte-level BPE nor WordPiece, naming the part
/// that is not known.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);

}  // namespace dtrain
