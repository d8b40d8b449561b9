// The bytes of a file, wherever they live: mapped from disk or inflated into memory. Immutable, shared by
// whoever reads them; read-only mappings of one file share their pages between all workers of a node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/fd.h"

namespace dtrain {

/// The first bytes of a file, mapped. Immutable.
class MappedFile {
 public:
  /// As map_file().
  MappedFile(int fd, std::size_t size_bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  /// Throws DataError where the file is shorter than its mapping by now: to read what is gone would be a
  /// SIGBUS. One system call; call it before a sample is read.
  void check_length() const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::span<const std::uint8_t> bytes_;
};

/// Read-only bytes with the owner that keeps them valid. Cheap to copy.
struct Content {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> bytes;
  std::shared_ptr<const MappedFile> mapped = nullptr;  ///< null: they are in memory

  /// MappedFile::check_length(), where it is one.
  void check_length() const {
    if (mapped) mapped->check_length();
  }
};

/// Maps the first `size_bytes` (> 0) of the open file `fd`; the mapping outlives the descriptor. The file
/// should not be shortened while it is mapped (MappedFile::check_length). Throws SystemError naming `path`.
Content map_file(int fd, std::size_t size_bytes, const std::string& path);

}  // namespace dtrain
