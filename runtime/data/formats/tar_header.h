// What is in the headers of a tar archive, without reading the archive: fields, records, maps of sparse
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/formats/tar.h"

namespace dtrain {

constexpr std::int64_t kTarBlock = 512;

using TarBytes = std::span<const std::uint8_t>;

/// Octal digits, or, where the first bit is set, a number of the base 256. Nothing where it is neither.
std::optional<std::int64_t> tar_number(TarBytes field);

/// Whether a header's own checksum is right.
bool tar_checksum_fits(TarBytes header);

/// A header's own name: of ustar with the prefix, of a long one the first 100 characters.
std::string tar_name(TarBytes header);

/// The name of the member whose content begins where `front` ends, of which `front` has the blocks before:
/// its own header's, or that of a long name or a pax header in front of that, if all of it is there. Empty
/// where the last block is no header.
std::string tar_name_before(TarBytes front);

/// Which bytes of a sparse file are stored, in the order in which they lie in the archive.
class SparseMap {
 public:
  /// Of old GNU archives: up to four pairs in the member's own header, up to 21 in each that follows. False
  /// where an entry is no number.
  bool add_entries(TarBytes entries);
  bool add(std::int64_t at, std::int64_t bytes);  ///< false where there are too many

  /// The pieces, whose first byte is at `offset` of the archive, of a file of `size` bytes of which `stored`
  /// are in the archive, and behind them one of 0 bytes. Nothing where they overlap, are out of order, leave
  /// the file, or are not `stored` bytes.
  std::optional<std::vector<TarPiece>> pieces(std::int64_t offset, std::int64_t size,
                                              std::int64_t stored) const;

 private:
  std::vector<TarPiece> stretches_;  ///< their offsets are not known
};

/// Version 1.0 of GNU's sparse files: the map is text in front of the content, "2\n0\n512\n4096\n10\n",
/// filled up to whole blocks.
class SparseMapText {
 public:
  /// Reads one more block; false where it is none of a map.
  bool add(TarBytes block);
  bool complete() const noexcept { return count_ && numbers_ == 2 * *count_; }
  const SparseMap& map() const noexcept { return map_; }

 private:
  bool end_number();

  std::string digits_;
  std::optional<std::int64_t> count_;  ///< of pairs
  std::int64_t numbers_ = 0, at_ = 0;
  SparseMap map_;
};

/// What precedes a member's own header and says more about it.
struct TarExtras {
  /// Records "LENGTH KEY=VALUE\n" of a pax header. Returns the rest from the first that is none, or empty.
  std::string_view add(std::string_view records);
  /// Whether a sparse file's map is in front of its content (version 1.0); else it is `map`.
  bool map_in_content() const { return major == "1" && minor == "0"; }
  /// Whether this is how a sparse file's map is written that SparseMap and SparseMapText know.
  bool version_known() const { return major.empty() || major == "0" || map_in_content(); }

  std::optional<std::string> name, sparse_name;  ///< the second wins
  std::optional<std::int64_t> bytes;             ///< in the archive
  bool sparse = false;                           ///< the member is a sparse file
  std::optional<std::int64_t> sparse_size;       ///< of a sparse file with its holes
  std::string major, minor;                      ///< of its version; 0.0 and 0.1 do not say it
  SparseMap map;                                 ///< of version 0.0 or 0.1

 private:
  bool add(std::string_view key, std::string_view value);
  bool add_sparse(std::string_view key, std::string_view value);
  bool add_map(std::string_view numbers);

  std::optional<std::int64_t> pair_at_;  ///< of version 0.0: half of a pair
};

}  // namespace dtrain
