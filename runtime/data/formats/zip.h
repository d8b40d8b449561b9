// The members of a zip archive and their content, as numpy.savez and other writers of zip files leave them:
// stored or deflated, with 64-bit sizes where they need them. Internal to runtime/data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/cache/content.h"

namespace dtrain {

/// A file in an archive, as the archive's directory lists it.
struct ZipMember {
  std::string name;
  std::uint64_t header = 0;        ///< where its own header begins in the archive
  std::uint64_t stored_bytes = 0;  ///< that it takes in the archive
  std::uint64_t bytes = 0;         ///< of its content
  std::uint32_t crc = 0;           ///< of its content
  bool deflated = false;
};

/// An archive's directory. Immutable.
class ZipArchive {
 public:
  /// `file` is the whole archive, `path` what messages call it. Throws DataError (path, offset, expected,
  /// found) for a file without a zip directory, one that is cut or damaged, and members that are encrypted or
  /// packed otherwise than by deflate.
  ZipArchive(Content file, std::string path);

  /// In the directory's order.
  const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// The content of `member`, one of members(): where it lies in the archive if it is stored, inflated into
  /// memory otherwise. Its checksum is verified, of a stored one up to 1 GiB. No more memory is taken than
  /// deflate can make of the bytes that are there. Throws DataError for a header, data or a checksum that are
  /// damaged.
  Content open(const ZipMember& member) const;

 private:
  struct Directory;

  Directory find_directory() const;
  void read_directory(const Directory& directory);
  Content inflate(const ZipMember& member, const Content& stored) const;
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& expected, const std::string& found) const;

  Content file_;
  std::string path_;
  std::uint64_t directory_begin_ = 0;
  std::vector<ZipMember> members_;
};

}  // namespace dtrain
