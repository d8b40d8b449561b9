// Saving in the background: a copy at once, one checkpoint in flight, failures reported once.
#include "runtime/checkpoint/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

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

TEST(CheckpointSaver, TakesACopyBeforeItReturns) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  CheckpointSaver saver(&store, log);
  EXPECT_FALSE(saver.durable_step());
  for (std::int64_t step = 1; step <= 5; ++step) {
    SampleSnapshot sample(step, 100'000);
    saver.save(sample.get(), soon());
    auto* weights = sample.get().model[0].view.as<float>();
    std::fill(weights, weights + 100'000, -1.0F);  // training continues while the thread writes
  }
  saver.wait(soon());
  EXPECT_EQ(saver.durable_step(), 5);
  const auto loaded = store.latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->state.step, 5);
  EXPECT_EQ(test::values<float>(loaded->model, "conv1.weight")[0], 5.0F);
  EXPECT_EQ(test::values<float>(loaded->model, "conv1.weight")[99'999], 5.0F + 99'999);
  EXPECT_EQ(store.list().size(), 2U);
}

TEST(CheckpointSaver, WritesInPlaceWhatItsOwnerKeeps) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  CheckpointSaver saver(&store, log);
  auto sample = std::make_shared<SampleSnapshot>(7, 100'000);
  const std::weak_ptr<SampleSnapshot> alive = sample;
  {
    const Snapshot& snapshot = sample->get();
    saver.save_in_place(snapshot, std::move(sample), soon());
  }
  EXPECT_FALSE(alive.expired());
  saver.wait(soon());
  EXPECT_EQ(test::values<float>(store.latest()->model, "conv1.weight")[99'999], 7.0F + 99'999);
  saver.save(SampleSnapshot(8).get(), soon());
  EXPECT_TRUE(alive.expired());
  saver.wait(soon());
  EXPECT_EQ(saver.durable_step(), 8);
}

TEST(CheckpointSaver, FinishesWhenItEnds) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  {
    CheckpointSaver saver(&store, log);
    saver.save(SampleSnapshot(3, 1'000'000).get(), soon());
  }
  EXPECT_EQ(store.latest()->state.step, 3);
}

TEST(CheckpointSaver, AFailureIsReportedOnceAndAnotherSaveWanted) {
  const TempDir folder;
  MemoryLog log;
  const auto directory = folder / "checkpoints";
  CheckpointStore store(directory, 2, log);
  CheckpointSaver saver(&store, log);
  saver.save(SampleSnapshot(1).get());
  saver.drain();
  EXPECT_NO_THROW(saver.check());
  fs::rename(directory, folder / "away");  // as if the disk were gone
  saver.save(SampleSnapshot(2).get());
  saver.wait(soon());
  EXPECT_EQ(log.warnings(), "");
  saver.poll();
  EXPECT_THAT(log.warnings(), HasSubstr("checkpoint of step 2 was not saved"));
  const std::string reported = log.warnings();
  saver.poll();
  EXPECT_EQ(log.warnings(), reported) << "reported once";
  EXPECT_TRUE(saver.owes());
  EXPECT_FALSE(saver.wants_save()) << "not at once: the disk has just refused";
  try {
    saver.check();
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("checkpoint of step 2 was not saved"));
  }
  EXPECT_EQ(saver.durable_step(), 1);
  fs::rename(folder / "away", directory);
  saver.save(SampleSnapshot(4).get());
  saver.drain();
  EXPECT_NO_THROW(saver.check());
  EXPECT_FALSE(saver.owes());
  EXPECT_EQ(store.latest()->state.step, 4);
}

TEST(CheckpointSaver, AFailureThatTheNextSaveFindsIsReportedToo) {
  const TempDir folder;
  MemoryLog log;
  test::write_file(folder / "file", "x");
  CheckpointStore store(folder / "file", 2, log);
  std::string heard;
  CheckpointSaver saver(&store, log, {.on_failure = [&](const Error& error) { heard += error.what(); }});
  saver.save(SampleSnapshot(1).get());
  saver.save(SampleSnapshot(2).get());
  EXPECT_THAT(heard, HasSubstr("file in the way"));
  EXPECT_EQ(log.warnings(), "");
}

TEST(CheckpointSaver, OneThatIsDueMeanwhileIsPostponed) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  std::atomic<bool> released = false;
  CheckpointSaver saver(&store, log, {.begin_write = [&] {
    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }});
  saver.save(SampleSnapshot(1).get());
  EXPECT_FALSE(saver.free());
  saver.postpone(2);
  EXPECT_TRUE(saver.owes());
  EXPECT_FALSE(saver.wants_save()) << "the disk is still busy";
  released = true;
  saver.wait(soon());
  EXPECT_TRUE(saver.wants_save());
}

TEST(CheckpointSaver, AnErrorNobodyFetchedIsLogged) {
  const TempDir folder;
  MemoryLog log;
  test::write_file(folder / "file", "x");
  CheckpointStore store(folder / "file", 2, log);
  {
    CheckpointSaver saver(&store, log);
    saver.save(SampleSnapshot(1).get(), soon());
  }
  EXPECT_THAT(log.warnings(), HasSubstr("file in the way"));
}

TEST(CheckpointSaver, RefusesBadSnapshotsInTheCaller) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 2, log);
  CheckpointSaver saver(&store, log);
  SampleSnapshot sample(1);
  sample.get().model.push_back(sample.get().model[0]);
  EXPECT_THROW(saver.save(sample.get(), soon()), UsageError);
}

// A log whose first message holds the writing thread, as a disk that hangs would.
class HeldLog final : public Log {
 public:
  HeldLog() { mutex_.lock(); }
  void write(LogLevel, std::string_view) noexcept override { const std::lock_guard lock(mutex_); }
  void release() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

TEST(CheckpointSaver, WaitsNoLongerThanTheDeadline) {
  const TempDir folder;
  HeldLog log;
  fs::create_directories(folder / ".staged-step-00000001");  // removing it is worth a message
  CheckpointStore store(folder.path(), 2, log);
  CheckpointSaver saver(&store, log);
  saver.save(SampleSnapshot(2).get(), soon());
  try {
    saver.save(SampleSnapshot(3).get(), Deadline::after(std::chrono::milliseconds(20)));
    ADD_FAILURE() << "did not wait";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
    EXPECT_THAT(error.what(), HasSubstr("step 2"));
  }
  EXPECT_THROW(saver.wait(Deadline::after(Duration::zero())), SystemError);
  log.release();
  saver.wait(soon());
  EXPECT_EQ(saver.durable_step(), 2);
}

}  // namespace
}  // namespace dtrain
