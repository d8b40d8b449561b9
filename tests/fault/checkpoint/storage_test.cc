// Storage that stumbles or breaks under the real program: what was good stays, an older checkpoint is taken
// only for one that is damaged, and the cause is named. Faults come from failing_calls.cc, preloaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "runtime/base/error.h"
#include "tests/fault/checkpoint/failing.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int kAlways = 0;

std::string rule(const std::string& call, const std::string& pattern, int first, int times,
                 int error_number) {
  return call + "," + pattern + "," + std::to_string(first) + "," + std::to_string(times) + "," +
         std::to_string(error_number);
}

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(directory)) result.push_back(entry.path().filename());
  std::sort(result.begin(), result.end());
  return result;
}

class Storage : public testing::Test {
 protected:
  // Leaves checkpoints of steps 3 and 6.
  void SetUp() override {
    write_small_dataset(folder_ / "data", 320, 40);
    const RunResult first = train_with({"--max-steps", "6"});
    ASSERT_EQ(first.exit_code, 0) << first.err;
    ASSERT_EQ(names(checkpoints()), good());
    weights_ = read_file(newest());
  }

  fs::path run_dir() const { return folder_ / "run"; }
  fs::path checkpoints() const { return run_dir() / "checkpoints"; }
  fs::path newest() const { return checkpoints() / "step-00000006" / "model.safetensors"; }
  static std::vector<std::string> good() {
    return {".lock", "starts.jsonl", "step-00000003", "step-00000006"};
  }

  RunResult train_with(const std::vector<std::string>& more, const std::string& fail = "") const {
    std::vector<std::string> arguments = {
        "--model",      "mlp", "--data-dir",          (folder_ / "data").string(),
        "--epochs",     "1",   "--global-batch-size", "32",
        "--eval-every", "0",   "--checkpoint-every",  "3",
        "--resume",     "auto"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunOptions options;
    preload_failing_calls(options, fail, fail_log());
    options.timeout = std::chrono::seconds(90);
    return train({.start = Start::alone,
                  .world = 1,
                  .launcher_arguments = {},
                  .arguments = arguments,
                  .run_dir = run_dir(),
                  .options = options});
  }

  /// Trains on to step 7 while calls fail; at least `met` must have.
  RunResult resume(const std::string& fail, std::ptrdiff_t met) const {
    const RunResult result = train_with({"--max-steps", "7"}, fail);
    const std::string log = fs::exists(fail_log()) ? read_file(fail_log()) : "";
    EXPECT_GE(std::count(log.begin(), log.end(), '\n'), met) << "the fault was not met\n" << result.err;
    return result;
  }
  fs::path fail_log() const { return folder_ / "failed"; }

  void expect_resumed_from(const RunResult& result, int step) const {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out + result.err, HasSubstr("resuming from step " + std::to_string(step) + ","));
  }

  TempDir folder_;
  std::string weights_;
};

TEST_F(Storage, AMomentsTroubleIsWaitedFor) {
  for (const std::string& fail : {rule("open", "*/step-00000006/model.safetensors", 1, 1, ESTALE),
                                  rule("open", "*/step-00000006/state.json", 1, 2, EMFILE),
                                  rule("read", "*/step-00000006/optimizer.safetensors", 1, 2, EIO),
                                  rule("read", "*/step-00000006/model.safetensors", 2, 1, ESTALE),
                                  rule("open", "*/checkpoints/.lock", 1, 1, EIO)}) {
    expect_resumed_from(resume(fail, 1), 6);
    EXPECT_EQ(names(checkpoints()), (std::vector<std::string>{".lock", "starts.jsonl", "step-00000003",
                                                              "step-00000006", "step-00000007"}))
        << fail;
    fs::remove_all(checkpoints() / "step-00000007");
    fs::remove(fail_log());
  }
}

// Only a lasting EIO is damage. With anything else the newest checkpoint may be good: nothing older is taken
// for it.
TEST_F(Storage, ALastingErrorStopsAndNothingIsLost) {
  for (const int error_number : {ESTALE, EACCES}) {
    const RunResult result =
        resume(rule("open", "*/step-00000006/model.safetensors", 1, kAlways, error_number), 2);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::system)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(newest().string()));
    EXPECT_THAT(result.err, HasSubstr(std::strerror(error_number)));
    EXPECT_EQ(names(checkpoints()), good());
    EXPECT_EQ(read_file(newest()), weights_);
  }
  expect_resumed_from(train_with({"--max-steps", "7"}), 6);
}

TEST_F(Storage, ABadSectorIsPassedOverAndSetAside) {
  expect_resumed_from(resume(rule("read", "*/step-00000006/model.safetensors", 2, kAlways, EIO), 3), 3);
  EXPECT_EQ(names(checkpoints()),
            (std::vector<std::string>{".lock", "starts.jsonl", "step-00000003", "step-00000006",
                                      "step-00000006.refused-unreadable", "step-00000007"}));
  EXPECT_EQ(read_file(checkpoints() / "step-00000006.refused-unreadable" / "model.safetensors"), weights_);
}

// The same EIO, but of a server that was away for a while: once an older checkpoint could be read, so can the
// newest.
TEST_F(Storage, AnErrorThatEndsWhileAnOlderOneIsReadCostsNothing) {
  expect_resumed_from(resume(rule("open", "*/step-00000006/state.json", 1, 7, EIO), 7), 6);
  EXPECT_EQ(std::ranges::count(names(checkpoints()), "step-00000006"), 1);
}

TEST_F(Storage, ADiskThatGoesOnRefusingCostsNoCheckpoint) {
  const RunResult result = resume(rule("write", "*/checkpoints/.staged-*state.json", 1, kAlways, ENOSPC), 3);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::system)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("checkpoint of step 7 was not saved, those before it are intact"));
  EXPECT_EQ(names(checkpoints()), good());
  EXPECT_EQ(read_file(newest()), weights_);
  expect_resumed_from(train_with({"--max-steps", "7"}), 6);
}

// In the middle of a run a checkpoint that cannot be written is tried again, and training continues
// meanwhile.
TEST_F(Storage, ADiskThatRefusesForAWhileCostsTimeOnly) {
  for (const std::string& fail : {rule("fsync", "*/checkpoints/.staged-*model.safetensors", 1, 2, EIO),
                                  rule("rename", "*/checkpoints/step-00000007", 1, 2, EIO)}) {
    const RunResult result = resume(fail, 2);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("checkpoint of step 7 was not saved"));
    EXPECT_THAT(result.err, HasSubstr("trying again"));
    EXPECT_EQ(names(checkpoints()).back(), "step-00000007");
    fs::remove_all(checkpoints() / "step-00000007");
    fs::remove(fail_log());
  }
}

// A second job in the folder of one that is running is refused before it has touched anything.
TEST_F(Storage, ASecondJobTouchesNothing) {
  MemoryLog log;
  CheckpointStore holder(checkpoints(), 0, log);
  holder.begin_writing(0, Deadline::never());
  const auto before = names(run_dir());
  const std::string config = read_file(run_dir() / "config.json");
  const auto changed = fs::last_write_time(run_dir() / "metrics.jsonl");
  const RunResult second = train_with({"--max-steps", "7", "--connect-timeout", "2"});
  EXPECT_EQ(second.exit_code, static_cast<int>(ExitCode::system)) << second.err;
  EXPECT_THAT(second.err, HasSubstr("found process " + std::to_string(::getpid())));
  EXPECT_THAT(second.err, HasSubstr("another folder"));
  EXPECT_EQ(names(run_dir()), before);
  EXPECT_EQ(names(checkpoints()), good());
  EXPECT_EQ(read_file(run_dir() / "config.json"), config);
  EXPECT_EQ(fs::last_write_time(run_dir() / "metrics.jsonl"), changed);
}

}  // namespace
}  // namespace dtrain::test
