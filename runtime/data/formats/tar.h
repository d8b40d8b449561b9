// The members of a tar archive and where their content lies, without reading the content: POSIX ustar and
// pax, GNU, and the format before them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace dtrain {

/// A regular file in an archive.
struct TarMember {
  std::string name;
  std::int64_t offset = 0;  ///< of its first byte in the archive
  std::int64_t bytes = 0;
};

/// An archive that is open to be read at any place; used by one thread.
class TarReader {
 public:
  /// Throws DataError for a file that is missing, compressed or none.
  explicit TarReader(std::string path);
  ~TarReader();
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  /// Calls `visit` for each regular file, in their order; directories, links and devices are left out. Throws
  /// DataError naming archive and offset for a header that is damaged, a member that ends behind the
  /// archive's end, and a sparse file, whose content does not lie in one piece.
  void for_each(const std::function<void(const TarMember&)>& visit);
  /// Of a name, that are in a member's own header.
  static constexpr std::size_t kHeaderName = 100;
  /// The regular file whose content begins at `offset`, as its own header says (of a long name the first 100
  /// characters or less); nothing where no header is before it, or the content is not all there.
  std::optional<TarMember> member_at(std::int64_t offset);
  /// The content of a member, which must be short; valid until the next call.
  std::span<const std::uint8_t> read(const TarMember& member);

 private:
  class Window;
  std::string path_;
  std::unique_ptr<Window> window_;
};

}  // namespace dtrain
