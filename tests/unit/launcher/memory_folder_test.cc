// A folder that lives as long as its owner, and what a killed owner has left.
#include "launcher/process/memory_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

TEST(MemoryFolder, IsForThisUserAloneAndGoesWithItsOwner) {
  const test::TempDir memory;
  std::optional<MemoryFolder> folder(std::in_place, memory.path().string());
  const fs::path path = folder->path();
  ASSERT_TRUE(fs::is_directory(path));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  test::write_file(path / "state", "x");
  folder.reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(MemoryFolder, RemovesThoseOfOwnersThatWereKilledAndNoOthers) {
  const test::TempDir memory;
  const MemoryFolder living(memory.path().string());
  const pid_t other = ::fork();
  if (other == 0) {
    const MemoryFolder left(memory.path().string());
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  fs::create_directory(memory / "somebody-elses");
  const auto folders = [&] { return std::distance(fs::directory_iterator(memory.path()), {}); };
  EXPECT_EQ(folders(), 3);
  const MemoryFolder next(memory.path().string());
  EXPECT_EQ(folders(), 3) << "the living one's, the stranger's and the next";
  EXPECT_TRUE(fs::exists(living.path()));
  EXPECT_TRUE(fs::exists(memory / "somebody-elses"));
}

TEST(MemoryFolder, IsNoneWhereNoneCanBeMade) {
  const test::TempDir memory;
  EXPECT_EQ(MemoryFolder((memory / "nowhere").string()).path(), "");
}

}  // namespace
}  // namespace dtrain::launcher
