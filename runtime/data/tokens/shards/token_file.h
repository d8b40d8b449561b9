// Files of tokens: dtrain's own shards, and those that llm.c, modded-nanogpt, nanoGPT, Megatron and LLM.Q
// read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/cache/content.h"

namespace dtrain {

/// How the tokens of a file are stored, little-endian.
enum class TokenType : std::uint32_t { u8 = 1, u16 = 2, i32 = 4, i64 = 8 };

/// An opened file, of any of the formats. Immutable, cheap to copy.
struct TokenFile {
  std::string path;
  std::string format;  ///< "a dtrain shard", "llm.c's", …
  Content content;     ///< the tokens, as many as `count`
  TokenType type = TokenType::u16;
  std::int64_t count = 0;
  std::int64_t vocabulary = 0;               ///< tokens are below it; 0: the file does not say
  std::uint64_t hash = 0;                    ///< Tokenizer::hash() of what wrote it; 0: the file does not say
  std::vector<std::int64_t> documents = {};  ///< where each begins, in tokens; empty: the file does not say
  /// A bit for each token, the lowest of a byte first, 0 for tokens that a model is not asked for; nothing:
  /// all are asked for.
  std::optional<Content> asked = std::nullopt;

  /// Fills `tokens` from token `first` on. Throws as Content::read(), and DataError for a number that 32 bits
  /// do not hold.
  void read(std::int64_t first, std::span<std::int32_t> tokens) const;
  /// Fills `asked`, 1 or 0, from token `first` on.
  void read_asked(std::int64_t first, std::span<std::uint8_t> asked) const;
};

/// Opens a file. What has none of the other formats' magic numbers, and is named *.bin, is nanoGPT's: bare
/// u16. Throws DataError (path, offset, expected, found) for a version that is not known, a size that is not
/// what the header says, a header or index of another checksum, loss masks of LLM.Q's.
TokenFile open_token_file(const std::string& path);

/// The paths that `pattern` (glob) matches, in order; of several, without those that lie beside tokens by
/// their names: Megatron's indices, which are found through theirs, and what a conversion keeps of its
/// progress.
std::vector<std::string> token_files_matching(const std::string& pattern);

/// Reads all of a dtrain shard against its checksums, and that no token is outside its vocabulary. Throws
/// DataError. Of other formats, which have no checksum, only the vocabulary is checked, where they say it.
void verify(const TokenFile& file);

}  // namespace dtrain
