// The members of a tar archive and where their content lies, without reading the content: POSIX ustar and
// pax, GNU, and the format before them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrain {

/// Bytes of a sparse file that are stored one after the other.
struct TarPiece {
  std::int64_t offset = 0;  ///< of its first byte in the archive
  std::int64_t at = 0;      ///< of its first byte in the file
  std::int64_t bytes = 0;
};

/// A regular file in an archive.
struct TarMember {
  std::string name;
  std::int64_t offset = 0;  ///< of its first byte in the archive
  std::int64_t bytes = 0;   ///< of a sparse file with its holes, which the archive does not have
  /// Of a sparse file what is stored, in order, the last of 0 bytes; between them the file is zero. Empty:
  /// the file lies in one piece.
  std::vector<TarPiece> pieces = {};
};

struct TarExtras;

/// An archive that is open to be read at any place; used by one thread.
class TarReader {
 public:
  /// Throws DataError for a file that is missing, compressed or none.
  explicit TarReader(std::string path);
  ~TarReader();
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  /// Calls `visit` for each regular file, in their order; directories, links and devices are left out. Sparse
  /// files are those of GNU tar: old ones, and versions 0.0, 0.1 and 1.0 in pax headers. Throws DataError
  /// naming archive and offset for a header or a sparse file's map that is damaged, and for a member that
  /// ends behind the archive's end.
  void for_each(const std::function<void(const TarMember&)>& visit);
  /// Of a name, that are in a member's own header.
  static constexpr std::size_t kHeaderName = 100;
  /// The regular file whose content begins at `offset`, as its own header says (of a long name the first 100
  /// characters or less); nothing where no header is before it, or the content is not all there, and for a
  /// sparse file.
  std::optional<TarMember> member_at(std::int64_t offset);
  /// The content of a member, which must be short; valid until the next call. Throws as check_sparse().
  std::span<const std::uint8_t> read(const TarMember& member);

 private:
  class Window;

  void read_extras(char kind, const TarMember& member, TarExtras& extras);
  void read_old_map(std::int64_t header, TarMember& member);
  void read_pax_map(const TarExtras& extras, TarMember& member);
  void check_end(std::int64_t header, const TarMember& member) const;

  std::string path_;
  std::unique_ptr<Window> window_;
  std::vector<std::uint8_t> filled_;  ///< a sparse file
};

/// A sparse file may claim any size. Throws DataError naming the archive `path` and the offset for one of
/// more than 1 GiB: its content is not read.
void check_sparse(const std::string& path, const TarMember& member);

}  // namespace dtrain
