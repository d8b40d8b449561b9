#include "tests/support/temp_dir.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain::test {

TempDir::TempDir() {
  std::string pattern = std::filesystem::temp_directory_path() / "dtrain-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw SystemError("mkdtemp " + pattern, errno);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.flush();
  if (!out) throw SystemError("write " + path.string(), errno);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SystemError("open " + path.string(), errno);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

}  // namespace dtrain::test
