// A file that is read by position. A disk or a file server that stumbles for a moment is waited for, so that
// what reaches the caller is lasting: DataError says that the file is not what it must be, SystemError that
// it cannot be read. Internal to runtime/checkpoint.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain {

/// How long a failing system call is repeated before its error is believed.
inline constexpr Duration kReadPatience = std::chrono::seconds(3);

/// Calls `attempt` until it throws no SystemError, with growing pauses from 50 ms, for at most kReadPatience;
/// then the last SystemError is thrown, saying how often it was tried. Any other exception passes at once.
void with_patience(const std::function<void()>& attempt);

/// Thread-safe as long as release() is not called. Moves only.
class InputFile {
 public:
  /// Opens `path`. Throws DataError when there is no regular file, SystemError when it cannot be opened.
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return identity_.size; }

  /// Fills `out` with the bytes from `offset` on. Throws DataError when the file ends before or is another
  /// one than was opened first, SystemError when it cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Closes the file until the next read, which then opens it for its own time only: for sets of more files
  /// than a process may have open.
  void release() noexcept;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    std::uint64_t size = 0;
    bool operator==(const Identity&) const = default;
  };

  UniqueFd open_once(Identity& identity) const;
  UniqueFd open_again() const;
  void read_once(int fd, std::uint64_t offset, std::span<std::byte> out) const;

  std::filesystem::path path_;
  Identity identity_;
  UniqueFd fd_;
};

/// Collects small reads of one file, by rising position, and does neighbours in one: what is read beyond what
/// was asked for is at most a page for each piece.
class GatheredReads {
 public:
  /// `file` is borrowed.
  explicit GatheredReads(const InputFile& file) : file_(&file) {}

  /// `size` bytes from `offset` on shall come to `target`, at the latest when flush() returns.
  void add(std::uint64_t offset, std::byte* target, std::size_t size);
  /// Does what is left. Throws as InputFile::read.
  void flush();

 private:
  struct Piece {
    std::uint64_t offset;
    std::byte* target;
    std::size_t size;
  };

  const InputFile* file_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> buffer_;
};

}  // namespace dtrain
