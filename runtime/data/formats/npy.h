// Reads NumPy's .npy files: a magic number, a version, a header that is a Python dictionary (descr,
// fortran_order, shape), then the elements. Versions 1 to 3, little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/data/cache/content.h"
#include "runtime/device/view.h"

namespace dtrain {

/// Element types of a .npy file that are read.
enum class NpyType { f4, f8, f2, i4, i8, i2, i1, u1, b1 };

/// Bytes of one element.
std::size_t size_of(NpyType type) noexcept;
/// As a tensor's: a bool is a byte of 0 or 1.
DType dtype_of_npy(NpyType type) noexcept;

/// What is in front of the elements.
struct NpyHeader {
  NpyType type = NpyType::f4;
  Dims shape;               ///< extents of 0 are possible
  bool fortran = false;     ///< elements lie in the order of the last index, not of the first
  std::size_t bytes = 0;    ///< where the elements begin
  std::uint64_t total = 0;  ///< bytes of header and elements
};

/// Parses the header at the front of `content`, of which `content` holds at least that much. Throws DataError
/// (path, offset, expected, found) for another magic number or version, a header that is cut or is not such a
/// dictionary, big-endian or other elements, more than kMaxRank dimensions, a size that
/// overflows.
NpyHeader parse_npy_header(std::span<const std::uint8_t> content, const std::string& path);

/// An array on disk; immutable and cheap to copy.
struct NpyArray {
  NpyHeader header;
  Content elements;  ///< in C order; of a file in Fortran order a copy in memory

  /// Row `index` of [N, …], as it is in the file: not aligned. Valid as what Content::read() gives, which it
  /// throws as.
  View row(std::int64_t index) const;
};

/// The array in `content`, the whole of a .npy file that messages call `path`. Throws DataError as
/// parse_npy_header does, and for content that is shorter or longer than its header says.
NpyArray read_npy(const Content& content, const std::string& path);

/// Opens `path`. Throws DataError as parse_npy_header does, for a
/// file that is missing, compressed, or shorter or longer than its header says.
NpyArray read_npy(const std::string& path);

}  // namespace dtrain
