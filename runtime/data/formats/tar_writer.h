// Tar archives, written front to back: ustar, and pax headers for names that do not fit. What is written
// depends on names and contents alone: times, owners and modes are the same in every archive.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/fd.h"

namespace dtrain {

/// Used by one thread.
class TarWriter {
 public:
  /// Creates `path`, or empties it. Throws SystemError.
  explicit TarWriter(std::string path);

  /// A regular file of that name. Throws SystemError, and UsageError from 8 GiB.
  void add(std::string_view name, std::string_view content);
  void add(std::string_view name, std::span<const std::uint8_t> content) {
    add(name, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
  }
  /// Of the archive so far; a multiple of 512.
  std::int64_t bytes() const noexcept { return bytes_; }
  /// The archive's end; it is on the disk then. Nothing may be added. Throws SystemError.
  void finish();

 private:
  void add_member(std::string_view name, char kind, std::string_view content);
  void put(std::string_view bytes);
  void flush();

  std::string path_, waiting_;
  UniqueFd file_;
  std::int64_t bytes_ = 0;
};

}  // namespace dtrain
