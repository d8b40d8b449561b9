// The background writer: a copy at once, one in flight, errors on the next call.
#include "runtime/checkpoint/async_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::MemoryLog;
using test::SampleSnapshot;
using test::TempDir;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

TEST(AsyncCheckpointWriter, TakesACopyBeforeItReturns) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  AsyncCheckpointWriter writer(store);
  EXPECT_FALSE(writer.durable_step());
  for (std::int64_t step = 1; step <= 5; ++step) {
    SampleSnapshot sample(step, 100'000);
    writer.save(sample.get(), soon());
    auto* weights = sample.get().model[0].view.as<float>();
    std::fill(weights, weights + 100'000, -1.0F);  // training goes on while the thread writes
  }
  writer.flush(soon());
  EXPECT_EQ(writer.durable_step(), 5);
  const auto loaded = store.latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->state.step, 5);
  EXPECT_EQ(test::values<float>(loaded->model, "conv1.weight")[0], 5.0F);
  EXPECT_EQ(test::values<float>(loaded->model, "conv1.weight")[99'999], 5.0F + 99'999);
  EXPECT_EQ(store.list().size(), 2U);
}

TEST(AsyncCheckpointWriter, FinishesWhenItEnds) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  {
    AsyncCheckpointWriter writer(store);
    writer.save(SampleSnapshot(3, 1'000'000).get(), soon());
  }
  EXPECT_EQ(store.latest()->state.step, 3);
}

TEST(AsyncCheckpointWriter, ErrorsComeWithTheNextCall) {
  const TempDir folder;
  MemoryLog log;
  const auto directory = folder / "checkpoints";
  CheckpointStore store(directory, 2, log);
  AsyncCheckpointWriter writer(store);
  writer.save(SampleSnapshot(1).get(), soon());
  writer.flush(soon());
  fs::rename(directory, folder / "away");  // as if the disk were gone
  writer.save(SampleSnapshot(2).get(), soon());
  try {
    writer.flush(soon());
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("checkpoint of step 2 was not saved"));
  }
  EXPECT_EQ(writer.durable_step(), 1);
  writer.flush(soon());  // told once
  writer.save(SampleSnapshot(3).get(), soon());
  EXPECT_THROW(writer.flush(soon()), SystemError);
  fs::rename(folder / "away", directory);
  writer.save(SampleSnapshot(4).get(), soon());
  writer.flush(soon());
  EXPECT_EQ(store.latest()->state.step, 4);
}

TEST(AsyncCheckpointWriter, AnErrorNobodyFetchedIsLogged) {
  const TempDir folder;
  MemoryLog log;
  test::write_file(folder / "file", "x");
  CheckpointStore store(folder / "file", 2, log);
  {
    AsyncCheckpointWriter writer(store);
    writer.save(SampleSnapshot(1).get(), soon());
  }
  EXPECT_THAT(log.warnings(), HasSubstr("file in the way"));
}

TEST(AsyncCheckpointWriter, RefusesBadSnapshotsInTheCaller) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  AsyncCheckpointWriter writer(store);
  SampleSnapshot sample(1);
  sample.get().model.push_back(sample.get().model[0]);
  EXPECT_THROW(writer.save(sample.get(), soon()), UsageError);
}

// A log whose first message holds the writing thread, as a disk that hangs would.
class HeldLog final : public Log {
 public:
  HeldLog() { mutex_.lock(); }
  void write(LogLevel, std::string_view) noexcept override { const std::lock_guard lock(mutex_); }
  void let_go() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

TEST(AsyncCheckpointWriter, WaitsNoLongerThanTheDeadline) {
  const TempDir folder;
  HeldLog log;
  fs::create_directories(folder / ".staged-step-00000001");  // removing it is worth a message
  CheckpointStore store(folder.path(), 2, log);
  AsyncCheckpointWriter writer(store);
  writer.save(SampleSnapshot(2).get(), soon());
  try {
    writer.save(SampleSnapshot(3).get(), Deadline::after(std::chrono::milliseconds(20)));
    ADD_FAILURE() << "did not wait";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
    EXPECT_THAT(error.what(), HasSubstr("step 2"));
  }
  EXPECT_THROW(writer.flush(Deadline::after(Duration::zero())), SystemError);
  log.let_go();
  writer.flush(soon());
  EXPECT_EQ(writer.durable_step(), 2);
}

}  // namespace
}  // namespace dtrain
