// Reads IDX files (the format of MNIST and its relatives): two zero bytes, element type, number of
// dimensions, the dimensions as big-endian 32-bit numbers, then the elements in row-major order. Plain or
// gzip, told by content.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "runtime/data/cache/content.h"
#include "runtime/data/cache/data_cache.h"
#include "runtime/device/dims.h"

namespace dtrain {

/// Unsigned bytes of shape `dims`; immutable and cheap to copy.
struct IdxArray {
  Dims dims;                     ///< [count, …], every extent ≥ 1
  Content elements;              ///< dims.product() bytes
  std::size_t header_bytes = 0;  ///< where they start in the decoded file, for messages
};

/// What the caller knows about the file before it is read.
struct IdxExpectation {
  /// Extents behind the first: {28, 28} for images, {} for labels; nothing: any.
  std::optional<Dims> item = Dims();
  std::string purpose = "an IDX file";  ///< completes "expected …" when the file is not there
};

/// Opens `path`: a plain file is read as its elements are; a gzip file comes from `cache` or is inflated,
/// into the cache where that works, else into memory. The header is checked before anything is inflated, and
/// no more memory is taken than the file can hold. Throws DataError (path, offset, expected, found) for a
/// missing or cut file, one that is longer than its dimensions say, a wrong type or shape, dimensions whose
/// product overflows, damaged gzip data. Offsets into gzip files count decompressed bytes where the message
/// says so.
IdxArray read_idx(const std::string& path, const IdxExpectation& expectation, DataCache& cache);

}  // namespace dtrain
