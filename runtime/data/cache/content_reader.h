// Reads a file's content from front to back, inflating it on the way when it is gzip (told by its first two
// bytes, not by its name). Never holds more than a fixed buffer, whatever the file claims.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/fd.h"

namespace dtrain {

/// What tells one version of a source file from another (docs/decisions/005-data-cache.md).
struct SourceIdentity {
  std::string path;  ///< absolute, links resolved
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< since the epoch
  std::uint64_t tail = 0;     ///< the last eight bytes: in gzip, CRC-32 and length of the content
};

/// One pass over one file. Not thread-safe.
class ContentReader {
 public:
  /// Opens a regular file. Throws DataError when it is missing, unreadable or not a regular file; `purpose`
  /// says in that message what was expected there ("the training images; apt install …").
  explicit ContentReader(const std::string& path, const std::string& purpose = "a readable file");
  ~ContentReader();
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;

  bool compressed() const noexcept { return inflater_ != nullptr; }
  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_.get(); }
  std::uint64_t file_bytes() const noexcept { return identity_.size_bytes; }
  const SourceIdentity& identity() const noexcept { return identity_; }
  /// No content can be longer: the file's own size, or what deflate can make of it at most (1032 : 1).
  std::uint64_t max_content_bytes() const noexcept;
  /// Bytes of content handed out so far.
  std::uint64_t position() const noexcept { return position_; }

  /// Fills `out` from where the last call stopped. Returns the bytes written; fewer than asked for means that
  /// the content ended, and that gzip's own checksum and length were right. Throws DataError (offsets count
  /// bytes of the file as stored) for a cut or damaged gzip stream or anything but another gzip member behind
  /// it, SystemError for a failing read.
  std::size_t read(std::span<std::uint8_t> out);

 private:
  struct Inflater;
  std::size_t read_plain(std::span<std::uint8_t> out);
  std::size_t read_inflated(std::span<std::uint8_t> out);
  bool refill();
  bool next_member();
  void identify();

  std::string path_;
  UniqueFd fd_;
  SourceIdentity identity_;
  std::unique_ptr<Inflater> inflater_;
  std::uint64_t position_ = 0;
};

}  // namespace dtrain
