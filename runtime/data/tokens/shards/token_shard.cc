#include "runtime/data/tokens/shards/token_shard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are used as they lie in the file");

constexpr std::size_t kBuffer = 1 << 20, kAlign = 8;
constexpr std::uint32_t kWithAsked = 2;  // version

std::uint32_t add_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t crc_of(const ShardHeader& header) {
  return add_crc(0, std::as_bytes(std::span(&header, 1)).first(offsetof(ShardHeader, header_crc)));
}

std::uint64_t padded(std::uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void check_header(const ShardHeader& header, const std::string& path) {
  const auto refuse = [&](std::size_t offset, const std::string& expected, const std::string& found) {
    throw DataError(path, static_cast<std::int64_t>(offset), expected, found);
  };
  if (header.version != 1 && header.version != kWithAsked)
    refuse(offsetof(ShardHeader, version), "version 1 or 2 of a dtrain shard",
           std::to_string(header.version));
  if (header.header_crc != crc_of(header)) {
    refuse(offsetof(ShardHeader, header_crc), fmt::format("the header's CRC-32, {:08x}", crc_of(header)),
           fmt::format("{:08x}", header.header_crc));
  }
  if (header.token_bytes != 2 && header.token_bytes != 4)
    refuse(offsetof(ShardHeader, token_bytes), "2 or 4 bytes a token", std::to_string(header.token_bytes));
}

}  // namespace

TokenFile read_shard(const Content& content, const std::string& path) {
  ShardHeader header;
  std::memcpy(&header, content.read(0, sizeof header).data(), sizeof header);
  check_header(header, path);
  const std::uint64_t index = padded(sizeof header + header.tokens * header.token_bytes),
                      asked = index + 8 * header.documents,
                      total = asked + (header.version == kWithAsked ? asked_bytes(header.tokens) : 0);
  if (total != content.size()) {
    throw DataError(
        path, static_cast<std::int64_t>(std::min<std::uint64_t>(total, content.size())),
        fmt::format("{} bytes for {} tokens and {} documents", total, header.tokens, header.documents),
        fmt::format("a file of {}", content.size()));
  }
  TokenFile file{path, "a dtrain shard", content.from(sizeof header),
                 static_cast<TokenType>(header.token_bytes), static_cast<std::int64_t>(header.tokens)};
  file.vocabulary = static_cast<std::int64_t>(header.vocabulary);
  file.hash = header.tokenizer_hash;
  file.documents.resize(header.documents);
  const auto bytes = content.read(index, 8 * header.documents);
  if (const std::uint32_t crc = add_crc(0, std::as_bytes(bytes)); crc != header.index_crc) {
    throw DataError(path, static_cast<std::int64_t>(index),
                    fmt::format("an index of documents with CRC-32 {:08x}", header.index_crc),
                    fmt::format("{:08x}", crc));
  }
  std::memcpy(file.documents.data(), bytes.data(), bytes.size());
  if (header.version == kWithAsked) file.asked = content.from(asked);
  return file;
}

ShardWriter::ShardWriter(const std::filesystem::path& path, std::int64_t vocabulary,
                         std::uint64_t tokenizer_hash)
    : path_(path), temporary_(path.string() + ".tmp") {
  header_.token_bytes = vocabulary <= 65'536 ? 2 : 4;
  header_.vocabulary = static_cast<std::uint64_t>(vocabulary);
  header_.tokenizer_hash = tokenizer_hash;
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  fd_.reset(
      static_cast<int>(check(Sys{::open(temporary_.c_str(), flags, 0666)}, "open " + temporary_.string())));
  const auto place = std::as_bytes(std::span(&header_, 1));
  buffer_.assign(place.begin(), place.end());  // written again at the end
}

ShardWriter::~ShardWriter() {
  if (!finished_) ::unlink(temporary_.c_str());
}

void ShardWriter::append(std::span<const std::int32_t> tokens, bool asked) {
  const std::uint64_t end = header_.tokens + tokens.size();
  if (!asked || !asked_.empty()) {
    if (asked_.empty()) asked_.assign(asked_bytes(header_.tokens), std::byte{0xff});  // those before
    asked_.resize(asked_bytes(end));
    for (std::uint64_t at = header_.tokens; at < asked_.size() * 8; ++at) {
      const auto bit = std::byte{1} << (at % 8);
      if (asked && at < end) {
        asked_[at / 8] |= bit;
      } else {
        asked_[at / 8] &= ~bit;
      }
    }
  }
  const std::size_t before = buffer_.size();
  buffer_.resize(before + tokens.size() * header_.token_bytes);
  std::byte* out = buffer_.data() + before;
  for (const std::int32_t token : tokens) {
    if (token < 0 || static_cast<std::uint64_t>(token) >= header_.vocabulary) {
      throw UsageError(
          fmt::format("{}: expected tokens below {}, got {}", path_.string(), header_.vocabulary, token));
    }
    std::memcpy(out, &token, header_.token_bytes);
    out += header_.token_bytes;
  }
  header_.tokens_crc = add_crc(header_.tokens_crc, std::span(buffer_).subspan(before));
  header_.tokens += tokens.size();
  if (buffer_.size() >= kBuffer) flush();
}

void ShardWriter::flush() {
  write_all(fd_.get(), buffer_, temporary_);
  buffer_.clear();
}

void ShardWriter::finish() {
  const std::uint64_t bytes = sizeof header_ + header_.tokens * header_.token_bytes;
  buffer_.resize(buffer_.size() + (padded(bytes) - bytes));
  const auto index = std::as_bytes(std::span(documents_));
  header_.documents = documents_.size();
  header_.index_crc = add_crc(0, index);
  if (!asked_.empty()) {
    header_.version = kWithAsked;
    header_.asked_crc = add_crc(0, asked_);
  }
  header_.header_crc = crc_of(header_);
  flush();
  write_all(fd_.get(), index, temporary_);
  write_all(fd_.get(), asked_, temporary_);
  check(Sys{::lseek(fd_.get(), 0, SEEK_SET)}, "seek in " + temporary_.string());
  write_all(fd_.get(), std::as_bytes(std::span(&header_, 1)), temporary_);
  sync_file(fd_.get(), temporary_);
  check(Sys{::rename(temporary_.c_str(), path_.c_str())},
        fmt::format("rename {} to {}", temporary_.string(), path_.string()));
  finished_ = true;
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace dtrain
