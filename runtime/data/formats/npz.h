// The arrays of a .npz file, a zip archive with a .npy file for each name, as numpy.savez and
// savez_compressed write them. Internal to runtime/data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/formats/npy.h"
#include "runtime/data/formats/zip.h"

namespace dtrain {

/// One .npz file. Immutable.
class NpzFile {
 public:
  /// Throws DataError for a file that is missing and as ZipArchive, and for members whose names do not end in
  /// .npy.
  explicit NpzFile(const std::string& path);

  /// Names of the arrays, without .npy, in their order.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// The array `name`. One that numpy.savez wrote is read from the file when it is needed, one of
  /// savez_compressed is in memory. Messages call it "FILE.npz:NAME", their offsets count bytes of the
  /// array's .npy file. Throws DataError where there is none of that name (listing those there are), and as
  /// ZipArchive::open and read_npy.
  NpyArray array(std::string_view name) const;

 private:
  std::string path_;
  ZipArchive archive_;
  std::vector<std::string> names_;
};

/// "data.npz" and "x" of "data.npz:x", "data.npz" and nothing of that alone; nothing for other names.
struct NpzName {
  std::string file, array;
};
std::optional<NpzName> npz_name(const std::string& text);

}  // namespace dtrain
