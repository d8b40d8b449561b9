// A file that appears whole or not at all, and replaces another only when that was asked for.
#pragma once

#include <filesystem>
#include <string_view>

#include "runtime/base/fd.h"

namespace dtrain {

/// Throws UsageError where `path` is a folder, or is there and `overwrite` is false.
void check_free(const std::filesystem::path& path, bool overwrite);
/// A name beside `path` to write it under at first.
std::filesystem::path draft_of(const std::filesystem::path& path);
/// Gives `draft`, a durable file beside `path`, that name. Throws SystemError, UsageError where `path` has
/// appeared meanwhile and must not be replaced.
void put_in_place(const std::filesystem::path& draft, const std::filesystem::path& path, bool overwrite);

/// Written beside its place first. What was begun and not committed is removed.
class OutputFile {
 public:
  /// Throws UsageError where `path` is there and `overwrite` is false, SystemError where its folder cannot be
  /// written.
  OutputFile(std::filesystem::path path, bool overwrite);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws SystemError.
  void write(std::string_view bytes);
  /// Makes the file durable and gives it its name. Throws SystemError, UsageError where one of that name has
  /// appeared meanwhile and must not be replaced.
  void commit();

 private:
  std::filesystem::path path_, draft_;
  bool overwrite_;
  UniqueFd fd_;
};

}  // namespace dtrain
