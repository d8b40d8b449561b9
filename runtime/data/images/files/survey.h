// Every picture of a data set looked at once, by several threads: what they are, and which are bad.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/images/files/picture_files.h"

namespace dtrain {

/// One picture, decoded as a whole.
struct PictureFacts {
  PictureSize size;
  std::int64_t bytes = 0;
  PictureFormat format = PictureFormat::jpeg;
  bool progressive = false;  ///< a JPEG of several scans, which takes two to three times as long to decode
  std::uint32_t crc = 0;     ///< crc32 of the file, or of the member
  std::array<std::uint64_t, 3> sums{}, squares{};  ///< of the pixels' bytes, by channel
  std::string bad;                                 ///< why it cannot be read; then all else is unknown
};

/// Calls `body` for each index below `count`, from `threads` threads at once. Throws what a call threw, one
/// of them, after all threads have ended.
void for_each_index(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

/// Of each picture, by its index; what is wrong with one is in `bad`. Costs a decoding of everything.
std::vector<PictureFacts> survey(const PictureFiles& files, int threads);

/// Pictures whose files are the same byte for byte, each group in ascending order, the groups by their first.
/// Reads those again that may be. Throws as PictureFiles::read.
std::vector<std::vector<std::int64_t>> duplicates(const PictureFiles& files,
                                                  const std::vector<PictureFacts>& facts);

}  // namespace dtrain
