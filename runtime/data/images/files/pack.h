// Pictures packed into tar shards: few large files in place of many small ones, JPEGs rewritten so that they
// decode fastest, with a checksum for each. webdataset reads them, as does shards:….
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/images/files/picture_files.h"

namespace dtrain {

struct PackOptions {
  std::string prefix;                    ///< of the shards' paths: PREFIX-000000.tar, PREFIX-000001.tar, …
  std::int64_t shard_bytes = 256 << 20;  ///< a shard ends with the sample that makes it as large
  std::optional<std::uint64_t> shuffle = {};  ///< the seed of another order than that of the files
  int threads = 1;
};

struct Packed {
  std::vector<std::string> shards = {};
  std::int64_t samples = 0, bytes_before = 0, bytes_after = 0;  ///< of the pictures
  std::int64_t rewritten = 0;                                   ///< JPEGs that were rewritten
};

/// Writes sample k, in the order of the shards, as members K.jpg (.png, .webp), K.cls (its label) and K.json
/// ({"class", "crc32" of the picture, "source"}), K with nine digits; each shard begins with
/// __classes__, the classes' names. A JPEG becomes baseline with restart markers and Huffman tables of
/// its own, from the same coefficients; where that does not give the same pixels it stays as it is. All
/// shards get their names at the end, so that none is there when something fails. Throws UsageError where one
/// of them is there already, DataError, SystemError.
Packed pack_pictures(const PictureFiles& files, const PackOptions& options);

/// Compares the pictures in `shards` with their checksums, where there are any, and calls `bad` with what is
/// wrong with each that differs. Returns how many have one. Throws as TarReader.
std::int64_t check_packed(const std::vector<std::string>& shards,
                          const std::function<void(const std::string& message)>& bad);

}  // namespace dtrain
