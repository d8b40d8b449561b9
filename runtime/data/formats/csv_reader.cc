// A byte at a time, from a buffer: the state is where the code is.
#include "runtime/data/formats/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostRecordBytes = 16 << 20;

std::string byte_text(int byte) {
  if (byte < 0) return "the end of the file";
  if (byte == '\n') return "a line end";
  if (byte > ' ' && byte < 127) return fmt::format("'{}'", static_cast<char>(byte));
  return fmt::format("0x{:02x}", byte);
}

}  // namespace

CsvReader::CsvReader(std::string path, ReadBytes read_bytes, char delimiter, std::size_t buffer_bytes)
    : path_(std::move(path)),
      read_bytes_(std::move(read_bytes)),
      delimiter_(static_cast<unsigned char>(delimiter)),
      buffer_(buffer_bytes) {}

bool CsvReader::refill() {
  if (ended_) return false;
  before_ += static_cast<std::int64_t>(filled_);
  at_ = 0;
  filled_ = read_bytes_(buffer_);
  ended_ = filled_ < buffer_.size();
  return filled_ > 0;
}

void CsvReader::refuse(const std::string& expected, const std::string& found) const {
  throw DataError(path_, offset(), fmt::format("{} (line {})", expected, line_), found);
}

// Only the buffer's first bytes are looked at, which the file's first refill() has put there.
void CsvReader::skip_byte_order_mark() {
  constexpr std::array<std::uint8_t, 3> kMark = {0xef, 0xbb, 0xbf};
  if (filled_ >= kMark.size() && std::equal(kMark.begin(), kMark.end(), buffer_.begin())) at_ = kMark.size();
}

// True when there was one.
bool CsvReader::skip_line_end() {
  if (peek() == '\r') {
    advance();
    if (peek() != '\n') refuse("a line feed behind a carriage return", byte_text(peek()));
  }
  if (peek() != '\n') return false;
  advance();
  ++line_;
  return true;
}

bool CsvReader::next(CsvRecord& record) {
  if (offset() == 0 && peek() != kEnd) skip_byte_order_mark();
  skip_spaces();
  while (skip_line_end()) skip_spaces();
  record.text_.clear();
  record.fields_.clear();
  record.line_ = line_;
  if (peek() == kEnd) return false;
  while (read_field(record)) {
  }
  return true;
}

void CsvReader::skip_spaces() {
  while (delimiter_ == ' ' && (peek() == ' ' || peek() == '\t')) advance();
}

// Whether another field follows behind this one, which has ended.
bool CsvReader::pass_delimiter() {
  if (!is_delimiter(peek())) return false;
  advance();
  if (delimiter_ != ' ') return true;
  skip_spaces();
  return peek() != kEnd && peek() != '\n' && peek() != '\r';
}

// True when another field follows.
bool CsvReader::read_field(CsvRecord& record) {
  record.fields_.push_back({record.text_.size(), offset()});
  if (peek() == '"' ? read_quoted(record) : read_plain(record)) return true;
  skip_line_end();
  return false;
}

void CsvReader::append(CsvRecord& record, int byte) const {
  if (record.text_.size() == kMostRecordBytes)
    refuse(fmt::format("a record of at most {} bytes", kMostRecordBytes), "more; is a quote missing?");
  record.text_ += static_cast<char>(byte);
}

bool CsvReader::read_plain(CsvRecord& record) {
  while (true) {
    const int byte = peek();
    if (is_delimiter(byte) || byte == kEnd || byte == '\n' || byte == '\r') return pass_delimiter();
    if (byte == '"') refuse("quotes around the whole field, as RFC 4180 has it", "a quote inside it");
    append(record, byte);
    advance();
  }
}

bool CsvReader::read_quoted(CsvRecord& record) {
  advance();
  while (true) {
    const int byte = peek();
    if (byte == kEnd) {
      refuse(
          fmt::format("the closing quote of the field that begins at byte {}", record.fields_.back().offset),
          byte_text(byte));
    }
    advance();
    if (byte == '\n') ++line_;
    if (byte == '"') {
      if (peek() != '"') break;
      advance();
    }
    append(record, byte);
  }
  const int behind = peek();
  if (!is_delimiter(behind) && behind != kEnd && behind != '\n' && behind != '\r')
    refuse("a delimiter or the line's end behind a closing quote", byte_text(behind));
  return pass_delimiter();
}

}  // namespace dtrain
