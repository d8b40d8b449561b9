// dtrain's own shard: a header of 64 bytes, the tokens, zeros up to a multiple of 8 bytes, where each
// document begins (u64, in tokens). Version 2, where some tokens are not asked for, then has a bit for each
// token (TokenFile::asked) and zeros up to a multiple of 8 bytes. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/data/tokens/shards/token_file.h"

namespace dtrain {

/// As it lies in the file.
struct ShardHeader {
  char magic[8] = {'D', 'T', 'R', 'A', 'I', 'N', 'T', 'K'};
  std::uint32_t version = 1;
  std::uint32_t token_bytes = 2;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t tokenizer_hash = 0;
  std::uint32_t tokens_crc = 0;  ///< CRC-32 of the tokens
  std::uint32_t index_crc = 0;   ///< of where documents begin
  std::uint32_t header_crc = 0;  ///< of the header in front of it
  std::uint32_t asked_crc = 0;   ///< version 2: of the bits; it is not in header_crc. Version 1: 0
};
static_assert(sizeof(ShardHeader) == 64);

/// Bytes of the bits of so many tokens, with the zeros behind them.
constexpr std::uint64_t asked_bytes(std::uint64_t tokens) { return (tokens + 63) / 64 * 8; }

/// Parses the shard that `content` holds all of. Throws DataError.
TokenFile read_shard(const Content& content, const std::string& path);

/// Writes one shard: into a temporary file beside it, which takes its name when it is whole on the disk. Not
/// thread-safe.
class ShardWriter {
 public:
  /// Tokens of a vocabulary of at most 65,536 take two bytes, others four. Throws SystemError.
  ShardWriter(const std::filesystem::path& path, std::int64_t vocabulary, std::uint64_t tokenizer_hash);
  /// Removes what is not finished.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// What is appended next begins a document.
  void begin_document() { documents_.push_back(header_.tokens); }
  /// `asked`: whether a model is asked for them. Throws UsageError for a token outside the vocabulary,
  /// SystemError.
  void append(std::span<const std::int32_t> tokens, bool asked = true);
  std::int64_t tokens() const noexcept { return static_cast<std::int64_t>(header_.tokens); }
  /// The file is there, durably, when it returns. Throws SystemError.
  void finish();

 private:
  void flush();

  std::filesystem::path path_, temporary_;
  UniqueFd fd_;
  ShardHeader header_;
  std::vector<std::uint64_t> documents_;
  std::vector<std::byte> buffer_;
  std::vector<std::byte> asked_;  ///< bits; empty as long as all are asked for
  bool finished_ = false;
};

}  // namespace dtrain
