#include "runtime/data/tokens/shards/token_file.h"

#include <fmt/format.h>
#include <glob.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/tokens/shards/token_shard.h"

namespace dtrain {
namespace {

constexpr std::size_t kForeignHeader = 1024;
constexpr std::int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;
constexpr std::string_view kLlmq = "BIN.TOK\n", kMegatron{"MMIDIDX\0\0", 9};

template <class T>
T number_at(const Content& content, std::size_t offset) {
  T value;
  std::memcpy(&value, content.read(offset, sizeof value).data(), sizeof value);
  return value;
}

bool begins_with(const Content& content, std::string_view magic) {
  return content.size() >= magic.size() &&
         std::memcmp(content.read(0, magic.size()).data(), magic.data(), magic.size()) == 0;
}

void expect_size(const Content& content, std::uint64_t expected, const std::string& path,
                 std::string_view what) {
  if (content.size() == expected) return;
  throw DataError(path, static_cast<std::int64_t>(std::min<std::uint64_t>(content.size(), expected)),
                  fmt::format("{} bytes, as {} says", expected, what),
                  fmt::format("a file of {}", content.size()));
}

void expect_header(const Content& content, const std::string& path, std::string_view format) {
  if (content.size() >= kForeignHeader) return;
  throw DataError(path, static_cast<std::int64_t>(content.size()),
                  fmt::format("{} header of 1024 bytes", format), "the end of the file");
}

Content open_content(const std::string& path) {
  const ContentReader file(path, "a file of tokens");
  if (file.compressed()) throw DataError(path, 0, "a file of tokens", "gzip; unpack it first");
  return Content(file.fd(), static_cast<std::size_t>(file.file_bytes()), path);
}

/// Those of llm.c and modded-nanogpt: 256 int32, then the tokens.
TokenFile read_llmc(const Content& content, const std::string& path) {
  expect_header(content, path, "llm.c's");
  const bool gpt2 = number_at<std::int32_t>(content, 0) == kLlmcGpt2;
  const auto version = number_at<std::int32_t>(content, 4);
  if (version != (gpt2 ? 1 : 7))
    throw DataError(path, 4,
                    gpt2 ? "version 1 of llm.c's GPT-2 tokens" : "version 7 of llm.c's LLaMA 3 tokens",
                    std::to_string(version));
  const auto count = number_at<std::uint32_t>(content, 8);
  TokenFile file{path, "llm.c's", content.from(kForeignHeader), gpt2 ? TokenType::u16 : TokenType::i32,
                 count};
  file.vocabulary = gpt2 ? 50'257 : 128'256;
  expect_size(content, kForeignHeader + std::uint64_t{count} * static_cast<std::uint32_t>(file.type), path,
              "the header");
  return file;
}

TokenFile read_llmq(const Content& content, const std::string& path) {
  expect_header(content, path, "LLM.Q's");
  std::array<std::int32_t, 5> numbers;  // version, bytes, count, vocabulary, whether there are masks
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_at<std::int32_t>(content, 8 + 4 * i);
  const auto refuse = [&](std::size_t at, const char* expected) {
    throw DataError(path, static_cast<std::int64_t>(8 + 4 * at), expected, std::to_string(numbers[at]));
  };
  if (numbers[0] != 2) refuse(0, "version 2 of LLM.Q's tokens");
  if (numbers[1] != 4) refuse(1, "4 bytes a token");
  if (numbers[2] < 0) refuse(2, "a number of tokens");
  if (numbers[4] != 0) refuse(4, "tokens without loss masks, which are not understood");
  expect_size(content, kForeignHeader + 4 * static_cast<std::uint64_t>(numbers[2]), path, "the header");
  TokenFile file{path, "LLM.Q's", content.from(kForeignHeader), TokenType::i32, numbers[2]};
  file.vocabulary = std::max(numbers[3], 0);
  return file;
}

TokenType megatron_type(std::uint8_t code, const std::string& path) {
  switch (code) {
    case 1:
      return TokenType::u8;
    case 4:
      return TokenType::i32;
    case 5:
      return TokenType::i64;
    case 8:
      return TokenType::u16;
    default:
      throw DataError(path, 17, "tokens of type 1 (u8), 4 (i32), 5 (i64) or 8 (u16)", std::to_string(code));
  }
}

/// `path` is the index, `tokens` the file beside it.
TokenFile read_megatron(const Content& index, const std::string& path, const Content& tokens,
                        const std::string& tokens_path) {
  constexpr std::size_t kFront =
      34;  // magic, u64 version, u8 dtype, u64 sequences, u64 entries of the documents
  if (index.size() < kFront)
    throw DataError(path, static_cast<std::int64_t>(index.size()), "Megatron's header of 34 bytes",
                    "the end of the file");
  if (const auto version = number_at<std::uint64_t>(index, 9); version != 1)
    throw DataError(path, 9, "version 1 of Megatron's index", std::to_string(version));
  const auto code = number_at<std::uint8_t>(index, 17);
  TokenFile file{tokens_path, "Megatron's", tokens, megatron_type(code, path), 0};
  const auto sequences = number_at<std::uint64_t>(index, 18), entries = number_at<std::uint64_t>(index, 26);
  const std::uint64_t least = kFront + sequences * 12 + entries * 8;
  if (sequences > index.size() || entries > index.size() ||
      (index.size() != least && index.size() != least + sequences))
    expect_size(index, least, path, "the header");
  std::vector<std::int64_t> begins{0};
  for (std::uint64_t i = 0; i < sequences; ++i)
    begins.push_back(begins.back() + number_at<std::int32_t>(index, kFront + 4 * i));
  file.count = begins.back();
  expect_size(tokens, static_cast<std::uint64_t>(file.count) * static_cast<std::uint32_t>(file.type),
              tokens_path, path);
  for (std::uint64_t i = 0; i + 1 < entries; ++i) {
    const auto sequence = number_at<std::int64_t>(index, kFront + 12 * sequences + 8 * i);
    if (sequence < 0 || static_cast<std::uint64_t>(sequence) > sequences)
      throw DataError(path, static_cast<std::int64_t>(kFront + 12 * sequences + 8 * i),
                      fmt::format("a sequence of the {}", sequences), std::to_string(sequence));
    file.documents.push_back(begins[static_cast<std::size_t>(sequence)]);
  }
  return file;
}

}  // namespace

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  const auto width = static_cast<std::size_t>(type);
  const auto bytes = content.read(static_cast<std::size_t>(first) * width, tokens.size() * width);
  const auto convert = [&]<class T>(T value) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      if (sizeof value == 8 &&
          (static_cast<std::int64_t>(value) < INT32_MIN || static_cast<std::int64_t>(value) > INT32_MAX))
        throw DataError(path, -1, "tokens of 32 bits",
                        fmt::format("{} as token {}", value, first + static_cast<std::int64_t>(i)));
      tokens[i] = static_cast<std::int32_t>(value);
    }
  };
  switch (type) {
    case TokenType::u8:
      return convert(std::uint8_t{});
    case TokenType::u16:
      return convert(std::uint16_t{});
    case TokenType::i32:
      return convert(std::int32_t{});
    case TokenType::i64:
      return convert(std::int64_t{});
  }
}

void TokenFile::read_asked(std::int64_t first, std::span<std::uint8_t> bits) const {
  if (!asked) {
    std::ranges::fill(bits, std::uint8_t{1});
    return;
  }
  const auto begin = static_cast<std::size_t>(first), end = begin + bits.size();
  const auto bytes = asked->read(begin / 8, (end + 7) / 8 - begin / 8);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::size_t at = begin % 8 + i;
    bits[i] = static_cast<std::uint8_t>(bytes[at / 8] >> (at % 8) & 1);
  }
}

TokenFile open_token_file(const std::string& path) {
  const Content content = open_content(path);
  if (begins_with(content, {ShardHeader{}.magic, sizeof ShardHeader{}.magic})) {
    if (content.size() >= sizeof(ShardHeader)) return read_shard(content, path);
    throw DataError(path, static_cast<std::int64_t>(content.size()), "a dtrain shard's header of 64 bytes",
                    "the end of the file");
  }
  if (begins_with(content, kLlmq)) return read_llmq(content, path);
  if (begins_with(content, kMegatron)) {
    const std::string tokens = std::filesystem::path(path).replace_extension(".bin").string();
    return read_megatron(content, path, open_content(tokens), tokens);
  }
  if (content.size() >= 4) {
    const auto magic = number_at<std::int32_t>(content, 0);
    if (magic == kLlmcGpt2 || magic == kLlmcLlama3) return read_llmc(content, path);
  }
  const std::filesystem::path index = std::filesystem::path(path).replace_extension(".idx");
  std::error_code ignored;
  if (path != index.string() && std::filesystem::exists(index, ignored)) {
    const Content other = open_content(index.string());
    if (begins_with(other, kMegatron)) return read_megatron(other, index.string(), content, path);
  }
  if (!path.ends_with(".bin"))
    throw DataError(path, 0,
                    "the magic number of a dtrain shard, llm.c's, LLM.Q's or Megatron's tokens, or *.bin "
                    "with u16 alone (nanoGPT's)",
                    "another; give a pattern that leaves other files out, as DIR/*.tokens");
  if (content.size() % 2 != 0)
    throw DataError(path, static_cast<std::int64_t>(content.size()),
                    "tokens of two bytes (nanoGPT's), as no header says otherwise", "half of one");
  return {path, "nanoGPT's", content, TokenType::u16, static_cast<std::int64_t>(content.size() / 2)};
}

std::vector<std::string> token_files_matching(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  const auto is_beside = [](const std::string& path) {
    return path.ends_with(".idx") || path.ends_with("/progress.json") || path.ends_with(".tokens.tmp");
  };
  if (paths.size() > 1) std::erase_if(paths, is_beside);
  return paths;
}

void verify(const TokenFile& file) {
  constexpr std::int64_t kPiece = 1 << 18;
  std::vector<std::int32_t> tokens;
  uLong crc = 0;
  for (std::int64_t first = 0; first < file.count; first += kPiece) {
    tokens.resize(static_cast<std::size_t>(std::min(kPiece, file.count - first)));
    file.read(first, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (file.vocabulary > 0 && (tokens[i] < 0 || tokens[i] >= file.vocabulary))
        throw DataError(file.path, -1, fmt::format("tokens below {}", file.vocabulary),
                        fmt::format("{} as token {}", tokens[i], first + static_cast<std::int64_t>(i)));
    }
    const auto width = static_cast<std::size_t>(file.type);
    const auto bytes = file.content.read(static_cast<std::size_t>(first) * width, tokens.size() * width);
    crc = ::crc32_z(crc, bytes.data(), bytes.size());
  }
  if (file.format != "a dtrain shard") return;
  const Content whole = open_content(file.path);
  const auto check_crc = [&](std::size_t at, uLong found, const char* what) {
    const auto wanted = number_at<std::uint32_t>(whole, at);
    if (wanted == found) return;
    throw DataError(file.path, sizeof(ShardHeader), fmt::format("{} with CRC-32 {:08x}", what, wanted),
                    fmt::format("{:08x}", found));
  };
  check_crc(offsetof(ShardHeader, tokens_crc), crc, "tokens");
  if (!file.asked) return;
  const auto bits = file.asked->read(0, asked_bytes(static_cast<std::uint64_t>(file.count)));
  check_crc(offsetof(ShardHeader, asked_crc), ::crc32_z(0, bits.data(), bits.size()), "what is asked for");
}

}  // namespace dtrain
