// What a shared object needs, read from its file; other files say nothing, however they are broken.
#include "runtime/base/files/needed_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

TEST(NeededLibrariesTest, OfThisProgramAreTheSystems) {
  EXPECT_THAT(needed_libraries(own_program()).names,
              testing::AllOf(testing::Contains("libc.so.6"), testing::Contains("libstdc++.so.6")));
}

TEST(NeededLibrariesTest, OriginIsTheFilesFolder) {
  const NeededLibraries needed = needed_libraries(DTRAIN_FILE_WITH_RUN_PATH);
  EXPECT_THAT(needed.run_path,
              testing::Contains(fs::path(DTRAIN_FILE_WITH_RUN_PATH).parent_path() / "beside"));
}

TEST(NeededLibrariesTest, OtherFilesHaveNone) {
  const test::TempDir folder;
  std::ofstream(folder / "text")
      << "a text that is longer than an ELF header, which has 64 bytes, and no more";
  EXPECT_TRUE(needed_libraries(folder / "text").names.empty());
  EXPECT_TRUE(needed_libraries(folder / "nothing").names.empty());
  EXPECT_TRUE(needed_libraries(folder.path()).names.empty());
}

TEST(NeededLibrariesTest, AFileThatIsCutShortIsReadWithoutHarm) {
  std::ostringstream whole;
  whole << std::ifstream(DTRAIN_FILE_WITH_RUN_PATH, std::ios::binary).rdbuf();
  const test::TempDir folder;
  const std::string bytes = whole.str();
  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 7) {
    std::ofstream(folder / "cut", std::ios::binary | std::ios::trunc) << bytes.substr(0, length);
    EXPECT_LE(needed_libraries(folder / "cut").names.size(),
              needed_libraries(DTRAIN_FILE_WITH_RUN_PATH).names.size());
  }
}

}  // namespace
}  // namespace dtrain
