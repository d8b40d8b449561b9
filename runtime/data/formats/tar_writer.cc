#include "runtime/data/formats/tar_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/data/formats/tar_header.h"

namespace dtrain {
namespace {

constexpr std::size_t kBlock = kTarBlock, kMostName = 100, kPiece = 1 << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{8} << 30;  // eleven octal digits

/// Where a field of a header begins, and how many octal digits it has.
struct Octal {
  std::size_t at, digits;
};

void write_octal(std::array<char, kBlock>& block, Octal field, std::uint64_t value) {
  const std::string text = fmt::format("{:0{}o}", value, field.digits);
  std::ranges::copy(text, block.begin() + static_cast<std::ptrdiff_t>(field.at));
}

/// "LENGTH KEY=VALUE\n", of which LENGTH counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::string rest = fmt::format(" {}={}\n", key, value);
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

bool is_plain(std::string_view name) {
  return name.size() <= kMostName && std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

TarWriter::TarWriter(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_) throw SystemError("create " + path_, errno);
}

void TarWriter::add(std::string_view name, std::string_view content) {
  if (content.size() >= kMostBytes)
    throw UsageError(
        fmt::format("{}: expected members below 8 GiB, got {} bytes in {}", path_, content.size(), name));
  if (!is_plain(name)) add_member("pax", 'x', pax_record("path", name));
  add_member(name.substr(0, kMostName), '0', content);
}

void TarWriter::add_member(std::string_view name, char kind, std::string_view content) {
  std::array<char, kBlock> block{};
  std::ranges::copy(name, block.begin());
  write_octal(block, {100, 7}, 0644);
  write_octal(block, {108, 7}, 0);  // owner
  write_octal(block, {116, 7}, 0);  // group
  write_octal(block, {124, 11}, content.size());
  write_octal(block, {136, 11}, 0);  // time
  block[156] = kind;
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  std::memset(block.data() + 148, ' ', 8);
  std::uint64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  write_octal(block, {148, 6}, sum);
  block[154] = '\0';
  put({block.data(), block.size()});
  put(content);
  put(std::string((kBlock - content.size() % kBlock) % kBlock, '\0'));
}

void TarWriter::finish() {
  put(std::string(2 * kBlock, '\0'));
  flush();
  sync_file(file_.get(), path_);
}

void TarWriter::put(std::string_view bytes) {
  waiting_ += bytes;
  bytes_ += static_cast<std::int64_t>(bytes.size());
  if (waiting_.size() >= kPiece) flush();
}

void TarWriter::flush() {
  write_all(file_.get(), waiting_, path_);
  waiting_.clear();
}

}  // namespace dtrain
