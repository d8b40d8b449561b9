// Reads comma-separated values record by record (RFC 4180): fields may be quoted, quoted ones may hold
// commas, line ends and doubled quotes; lines end in LF or CR LF. Never holds more than a record and a fixed
// buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The fields of one record, unquoted.
class CsvRecord {
 public:
  std::size_t size() const noexcept { return fields_.size(); }
  /// Valid until the record is read into again.
  std::string_view operator[](std::size_t i) const noexcept {
    return std::string_view(text_).substr(fields_[i].from, end_of(i) - fields_[i].from);
  }
  /// Where in the content field `i` begins, its quote included.
  std::int64_t offset(std::size_t i) const noexcept { return fields_[i].offset; }
  /// The line the record begins in, from 1. A record may go over several.
  std::int64_t line() const noexcept { return line_; }

 private:
  friend class CsvReader;
  struct Place {
    std::size_t from;
    std::int64_t offset;
  };
  std::size_t end_of(std::size_t i) const noexcept {
    return i + 1 < fields_.size() ? fields_[i + 1].from : text_.size();
  }

  std::string text_;
  std::vector<Place> fields_;
  std::int64_t line_ = 0;
};

/// One pass over one file. Not thread-safe.
class CsvReader {
 public:
  /// Fills a span from where the last call stopped and returns how many bytes; fewer than asked for mean the
  /// end.
  using ReadBytes = std::function<std::size_t(std::span<std::uint8_t>)>;

  static constexpr std::size_t kBufferBytes = 256 << 10;

  /// A `delimiter` of ' ' stands for any number of spaces and tabs, which lines may also begin and end with.
  /// `path` is for messages, `buffer_bytes` (at least 3) how much is read at a time.
  CsvReader(std::string path, ReadBytes read_bytes, char delimiter = ',',
            std::size_t buffer_bytes = kBufferBytes);

  /// The next record; false at the end. Empty lines and a byte order mark at the front are skipped. Throws
  /// DataError (path, offset, expected, found) for a quote inside a field that is not quoted, for anything
  /// but a delimiter or a line end behind a closing quote, for a quoted field that never ends, a CR without
  /// LF, and a record of more than 16 MiB.
  bool next(CsvRecord& record);

 private:
  static constexpr int kEnd = -1;

  int peek() {
    if (at_ == filled_ && !refill()) return kEnd;
    return buffer_[at_];
  }
  void advance() noexcept { ++at_; }
  bool is_delimiter(int byte) const noexcept {
    return byte == delimiter_ || (delimiter_ == ' ' && byte == '\t');
  }
  std::int64_t offset() const noexcept { return before_ + static_cast<std::int64_t>(at_); }

  bool refill();
  void skip_byte_order_mark();
  bool skip_line_end();
  void skip_spaces();
  bool pass_delimiter();
  bool read_field(CsvRecord& record);
  bool read_plain(CsvRecord& record);
  bool read_quoted(CsvRecord& record);
  void append(CsvRecord& record, int byte) const;
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const;

  std::string path_;
  ReadBytes read_bytes_;
  int delimiter_;
  std::vector<std::uint8_t> buffer_;
  std::size_t at_ = 0, filled_ = 0;
  bool ended_ = false;
  std::int64_t before_ = 0;  // bytes of content in front of the buffer
  std::int64_t line_ = 1;
};

}  // namespace dtrain
