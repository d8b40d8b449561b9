// A folder that lives as long as the test.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dtrain::test {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Writes `content` to `path`, replacing what was there. Throws SystemError.
void write_file(const std::filesystem::path& path, std::string_view content);

/// Reads the whole file. Throws SystemError.
std::string read_file(const std::filesystem::path& path);

}  // namespace dtrain::test
