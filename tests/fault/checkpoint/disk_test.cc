// A full disk and a read-only one, on a small tmpfs in a mount namespace of its own (needs root): one clear
// error, and what was saved before is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/run_directory.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::MemoryLog;
using test::SampleSnapshot;
using testing::HasSubstr;

constexpr std::size_t kElems = 10'000;  // 40 kB a tensor

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

// Mounts 1 MiB at `where`, seen by this process only.
void mount_small_disk(const fs::path& where) {
  check(Sys{::unshare(CLONE_NEWNS)}, "unshare");
  check(Sys{::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr)}, "make mounts private");
  check(Sys{::mount("tmpfs", where.c_str(), "tmpfs", 0, "size=1m")}, "mount tmpfs");
}

class SmallDisk : public testing::Test {
 protected:
  void SetUp() override {
    const auto codes = test::run_ranks(1, [this](int) {
      try {
        mount_small_disk(folder_.path());
      } catch (const SystemError&) {
        ::_exit(77);
      }
    });
    if (codes[0] == 77) GTEST_SKIP() << "mounting a tmpfs needs root (CAP_SYS_ADMIN)";
  }

  // Runs `body` in a process that sees the small disk.
  void on_small_disk(const std::function<void(const fs::path&)>& body) {
    const auto codes = test::run_ranks(1, [&](int) {
      mount_small_disk(folder_.path());
      body(folder_.path());
      if (HasFailure()) throw Error("see above");
    });
    EXPECT_EQ(codes, std::vector<int>{0});
  }

  test::TempDir folder_;
};

// Leaves about `bytes` free.
void fill(const fs::path& disk, std::uint64_t bytes) {
  const auto free_bytes = fs::space(disk).available;
  ASSERT_GT(free_bytes, bytes);
  test::write_file(disk / "filler", std::string(free_bytes - bytes, 'x'));
}

TEST_F(SmallDisk, FullAtAnyPointLosesNothing) {
  on_small_disk([](const fs::path& disk) {
    MemoryLog log;
    CheckpointStore store(disk / "checkpoints", 2, log);
    store.save(SampleSnapshot(1, kElems).get());
    int failed = 0;
    std::int64_t newest = 1;
    for (std::int64_t step = 2; step < 32; ++step) {
      fill(disk, static_cast<std::uint64_t>(step - 2) * 4096);
      try {
        store.save(SampleSnapshot(step, kElems).get());
        newest = step;
      } catch (const SystemError& error) {
        ++failed;
        EXPECT_EQ(error.error_number(), ENOSPC);
        EXPECT_THAT(error.what(), HasSubstr("checkpoint of step " + std::to_string(step) + " was not saved"));
        EXPECT_THAT(error.what(), HasSubstr("No space left"));
      }
      const auto latest = store.latest();
      ASSERT_TRUE(latest);
      EXPECT_EQ(latest->state.step, newest);
      for (const auto& entry : fs::directory_iterator(disk / "checkpoints")) {
        EXPECT_EQ(entry.path().filename().string().find(".staged"), std::string::npos)
            << "half a checkpoint was left";
      }
      fs::remove(disk / "filler");
    }
    EXPECT_GT(failed, 5);
    EXPECT_LT(failed, 30);
    EXPECT_EQ(log.warnings(), "");
  });
}

TEST_F(SmallDisk, InTheBackgroundTheFailureIsReported) {
  on_small_disk([](const fs::path& disk) {
    MemoryLog log;
    CheckpointStore store(disk / "checkpoints", 2, log);
    CheckpointSaver saver(&store, log);
    saver.save(SampleSnapshot(1, kElems).get());
    saver.drain();
    fill(disk, 50'000);
    saver.save(SampleSnapshot(2, kElems).get());
    saver.drain();
    EXPECT_THROW(saver.check(), SystemError);
    EXPECT_EQ(saver.durable_step(), 1);
    EXPECT_EQ(store.latest()->state.step, 1);
  });
}

TEST_F(SmallDisk, SpaceIsCheckedBeforeTheStart) {
  on_small_disk([](const fs::path& disk) {
    MemoryLog log;
    CheckpointStore store(disk, 2, log);
    EXPECT_THROW(store.begin_writing(2 << 20, soon()), SystemError);
    EXPECT_THROW(RunDirectory::create(disk / "run", 2 << 20), SystemError);
    RunDirectory::create(disk / "run", 1 << 19);
  });
}

TEST_F(SmallDisk, FilesAreReplacedWholeOrNotAtAll) {
  on_small_disk([](const fs::path& disk) {
    replace_file(disk / "summary.json", "old");
    MetricsLog log(disk / "metrics.jsonl", 1);
    log.write(StepRecord{1, 0, 0, 0, 0});
    const std::string before = test::read_file(disk / "metrics.jsonl");
    fill(disk, 0);
    EXPECT_THROW(replace_file(disk / "summary.json", std::string(10'000, 'n')), SystemError);
    EXPECT_EQ(test::read_file(disk / "summary.json"), "old");
    EXPECT_THROW(
        {
          for (int step = 2; step < 200; ++step) log.write(StepRecord{step, 0, 0, 0, 0});
        },
        SystemError);
    const std::string after = test::read_file(disk / "metrics.jsonl");
    EXPECT_TRUE(after.starts_with(before));
    EXPECT_EQ(after.back(), '\n');
    EXPECT_EQ(std::distance(fs::directory_iterator(disk), fs::directory_iterator()), 3)
        << "a temporary file was left";
  });
}

TEST_F(SmallDisk, ReadOnlyIsOneClearError) {
  on_small_disk([](const fs::path& disk) {
    MemoryLog log;
    {
      CheckpointStore store(disk, 2, log);
      store.save(SampleSnapshot(1).get());
    }
    check(Sys{::mount("none", disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr)}, "remount");
    CheckpointStore store(disk, 2, log);
    try {
      store.begin_writing(0, soon());
      ADD_FAILURE() << "accepted";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.error_number(), EROFS);
      EXPECT_THAT(error.what(), HasSubstr(disk.string()));
    }
    EXPECT_EQ(store.latest()->state.step, 1) << "reading needs no writing";
    EXPECT_THROW(RunDirectory::create(disk / "run"), SystemError);
    EXPECT_THROW(MetricsLog(disk / "metrics.jsonl", 1), SystemError);
  });
}

}  // namespace
}  // namespace dtrain
