// What a folder of checkpoints promises: complete or absent, the newest good one found, the last K kept.
#include "runtime/checkpoint/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/random.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "tests/support/manual_clock.h"
#include "tests/support/process.h"
#include "tests/support/slowness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::MemoryLog;
using test::SampleSnapshot;
using test::TempDir;
using testing::HasSubstr;

std::vector<std::int64_t> steps(const CheckpointStore& store) {
  std::vector<std::int64_t> result;
  for (const auto& entry : store.list()) result.push_back(entry.step);
  return result;
}

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(directory)) result.push_back(entry.path().filename());
  std::sort(result.begin(), result.end());
  return result;
}

void flip(const fs::path& path, std::size_t bit) {
  std::string content = test::read_file(path);
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << (bit % 8)));
  test::write_file(path, content);
}

TEST(TrainingState, ComesBackWhole) {
  TrainingState state;
  state.step = 40;
  state.epoch = 3;
  state.position_in_epoch = 7;
  state.generators = {{"sampler", Generator(7).state()}, {"crc32", "\"crc32\": \"ffffffff\""}};
  state.schedule = {{"base_lr", 0.1}, {"tiny", 5e-324}, {"third", 1.0 / 3}};
  state.extra = {{"scaler", "{\"scale\":65536}"}, {"zz", "é\n\"\\"}};
  state.config_hash = "0123";
  state.program_version = "0.1.0";
  CheckpointSeals seals{{"model.safetensors", {123, "00aa00aa"}}}, loaded_seals;
  const std::string text = format_training_state(state, seals);
  EXPECT_EQ(parse_training_state(text, "state.json", loaded_seals), state);
  EXPECT_EQ(loaded_seals, seals);
}

TEST(TrainingState, RefusesWhatCannotBeWritten) {
  TrainingState negative, endless, not_text;
  negative.step = -1;
  endless.schedule["lr"] = std::numeric_limits<double>::infinity();
  not_text.extra["x"] = "\xff";
  for (const auto* state : {&negative, &endless, &not_text}) {
    EXPECT_THROW(format_training_state(*state, {}), UsageError);
  }
}

TEST(CheckpointStore, SavesAndLoads) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder / "a" / "checkpoints", 2, log);
  EXPECT_TRUE(store.list().empty());
  EXPECT_FALSE(store.latest());
  const SampleSnapshot sample(40);
  const auto path = store.save(sample.get());
  EXPECT_EQ(path, store.directory() / "step-00000040");
  EXPECT_EQ(names(path),
            (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));

  const auto loaded = store.latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->path, path);
  EXPECT_EQ(loaded->state, sample.get().state);
  EXPECT_EQ(test::values<float>(loaded->model, "fc2.bias")[1], -40.0F);
  EXPECT_EQ(test::values<std::int64_t>(loaded->optimizer, "step")[0], 40);
  EXPECT_LE(fs::file_size(path / "model.safetensors") + fs::file_size(path / "optimizer.safetensors"),
            checkpoint_bytes(sample.get()));
  EXPECT_EQ(log.warnings(), "");
}

TEST(CheckpointStore, KeepsTheLastOnes) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore two(folder / "two", 2, log), all(folder / "all", 0, log);
  for (const int step : {0, 10, 20, 30}) {
    two.save(SampleSnapshot(step).get());
    all.save(SampleSnapshot(step).get());
  }
  EXPECT_EQ(steps(two), (std::vector<std::int64_t>{20, 30}));
  EXPECT_EQ(steps(all), (std::vector<std::int64_t>{0, 10, 20, 30}));
  EXPECT_EQ(names(folder / "two"), (std::vector<std::string>{".lock", "step-00000020", "step-00000030"}));
  EXPECT_THROW(CheckpointStore(folder.path(), -1, log), UsageError);
}

TEST(CheckpointStore, KeepsTheBestAndLinksToIt) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 1, log);
  const auto save = [&](std::int64_t step, double best) {
    SampleSnapshot sample(step);
    sample.get().state.schedule[kBestStep] = best;
    store.save(sample.get());
    return std::pair(steps(store), load_checkpoint(folder / "best").state.step);
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(save(10, 10), std::pair(Steps{10}, 10L));
  EXPECT_EQ(save(20, 10), std::pair(Steps({10, 20}), 10L));
  EXPECT_EQ(save(30, 10), std::pair(Steps({10, 30}), 10L));
  EXPECT_EQ(save(40, 40), std::pair(Steps{40}, 40L));
  EXPECT_EQ(save(50, 40), std::pair(Steps({40, 50}), 40L));
}

TEST(CheckpointStore, RemovesOnlyWhatANewerOneSupersedes) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 1, log);
  store.save(SampleSnapshot(90).get());
  store.save(SampleSnapshot(40).get());
  store.save(SampleSnapshot(50).get());
  EXPECT_EQ(steps(store), (std::vector<std::int64_t>{50, 90}));
}

TEST(CheckpointStore, PassesOverWhatIsOfNoUse) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  for (const int step : {10, 20, 30}) store.save(SampleSnapshot(step).get());
  const auto above = [](std::int64_t most) {
    return [most](const Checkpoint& checkpoint) {
      return checkpoint.state.step > most ? std::optional<std::string>("fc1 is not finite") : std::nullopt;
    };
  };
  const auto found = store.latest(above(10));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 10);
  ASSERT_EQ(found->refused.size(), 2U);
  EXPECT_EQ(found->refused.front().reason, kDiverged);
  EXPECT_NE(log.warnings().find("fc1 is not finite"), std::string::npos);
  EXPECT_FALSE(store.latest(above(0)));
  EXPECT_EQ(steps(store), (std::vector<std::int64_t>{10, 20, 30})) << "readers touch nothing";
}

TEST(CheckpointStore, SetsAsideWhatTurnedOutToBeOfNoUse) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  for (const int step : {10, 20, 30}) store.save(SampleSnapshot(step).get());
  const auto left = store.refuse_from(20, kDiverged);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->step, 10);
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{".lock", "step-00000010", "step-00000020.refused-diverged",
                                      "step-00000030.refused-diverged"}));
  EXPECT_EQ(store.load(folder / "step-00000030.refused-diverged").state.step, 30) << "by its path";
  EXPECT_FALSE(store.refuse_from(0, kDiverged));
}

TEST(CheckpointStore, ReplacesTheSameStep) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 3, log);
  SampleSnapshot sample(7);
  store.save(sample.get());
  sample.get().state.config_hash = "other";
  store.save(sample.get());
  EXPECT_EQ(store.latest()->state.config_hash, "other");
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000007"}));
}

TEST(CheckpointStore, SetsAnAbandonedFutureAside) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  for (const int step : {10, 20, 30}) store.save(SampleSnapshot(step).get());
  store.resume_from(10);
  EXPECT_EQ(steps(store), (std::vector<std::int64_t>{10}));
  store.save(SampleSnapshot(20).get());
  store.resume_from(10);
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{".lock", "starts.jsonl", "step-00000010", "step-00000020.abandoned",
                                      "step-00000020.abandoned-2", "step-00000030.abandoned"}));
  EXPECT_EQ(load_checkpoint(folder / "step-00000030.abandoned").state.step, 30) << "set aside, not damaged";
}

TEST(CheckpointStore, FallsBackAndSaysWhy) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  for (const int step : {10, 20, 30, 40}) store.save(SampleSnapshot(step).get());
  flip(folder.path() / "step-00000040" / "model.safetensors", 8 * 300 + 3);
  fs::remove(folder.path() / "step-00000030" / "optimizer.safetensors");
  const auto latest = store.latest();
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->state.step, 20);
  EXPECT_THAT(log.warnings(), HasSubstr("step-00000040/model.safetensors: at byte"));
  EXPECT_THAT(log.warnings(), HasSubstr("step-00000030/optimizer.safetensors: expected a file, found none"));
  ASSERT_EQ(latest->refused.size(), 2U);
  EXPECT_EQ(latest->refused[0].step, 40);

  store.resume_from(20, latest->refused);
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{".lock", "starts.jsonl", "step-00000010", "step-00000020",
                                      "step-00000030.refused-damaged", "step-00000040.refused-damaged"}));
}

// One that was cut off in the middle of a save, and wakes when another has resumed.
TEST(CheckpointStore, WhatAnEarlierStartSavesAfterALaterOneIsNotTheRuns) {
  const TempDir folder;
  MemoryLog log;
  const auto late = fs::path(folder / "late");
  {
    CheckpointStore earlier(folder.path(), 0, log);
    EXPECT_EQ(earlier.resume_from(0), 1);
    for (const int step : {10, 20}) earlier.save(SampleSnapshot(step).get());
    fs::rename(folder / "step-00000020", late);  // not there yet
  }
  CheckpointStore store(folder.path(), 0, log);
  EXPECT_EQ(store.resume_from(10), 2);
  store.save(SampleSnapshot(15).get());
  fs::rename(late, folder / "step-00000020");
  const auto latest = store.latest();
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->state.step, 15);
  EXPECT_THAT(log.warnings(),
              HasSubstr("start 1 of the run wrote it after start 2 had resumed from an earlier one"));
  EXPECT_EQ(store.resume_from(15, latest->refused), 3);
  EXPECT_EQ(names(folder.path()),
            (std::vector<std::string>{".lock", "starts.jsonl", "step-00000010", "step-00000015",
                                      "step-00000020.refused-superseded"}));
  EXPECT_EQ(store.latest()->state.step, 15) << "what all starts had in common stays";
}

// As on a file server that has taken its lock away: it was stopped with a whole save in hand.
TEST(CheckpointStore, AProcessOfAnEarlierStartReplacesNothingThatALaterOneHasSaved) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore earlier(folder.path(), 0, log);
  EXPECT_EQ(earlier.resume_from(0), 1);
  const SampleSnapshot old(10);
  earlier.prepare(old.get(), {});
  fs::remove(folder / ".lock");
  fs::path saved;
  {
    CheckpointStore later(folder.path(), 0, log);
    EXPECT_EQ(later.resume_from(0), 2);
    saved = later.save(SampleSnapshot(10).get());
  }
  const std::string newer = test::read_file(saved / "state.json");
  earlier.prepare(old.get(), {});  // what it had in hand was swept away
  try {
    earlier.commit(old.get().state, 1);
    ADD_FAILURE() << "it has replaced a later start's";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("start 2 of the run"), HasSubstr("this is start 1")));
  }
  EXPECT_EQ(test::read_file(saved / "state.json"), newer);
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "starts.jsonl", "step-00000010"}));
  // Its own start's it may replace, as after going back a step.
  CheckpointStore again(folder.path(), 0, log);
  EXPECT_EQ(again.resume_from(0), 3);
  again.save(SampleSnapshot(10).get());
  EXPECT_EQ(again.save(SampleSnapshot(10).get()), saved);
}

TEST(CheckpointStore, WritesNothingWithoutItsPermit) {
  const TempDir folder;
  MemoryLog log;
  LeaseWord word{std::numeric_limits<std::int64_t>::max()};
  CheckpointStore store(folder.path(), 1, log);
  store.write_by(WritePermit(word));
  store.resume_from(0);
  store.save(SampleSnapshot(10).get());
  const auto before = names(folder.path());
  word = 0;
  EXPECT_THROW(store.save(SampleSnapshot(20).get()), PeerError);
  EXPECT_THROW(store.resume_from(0), PeerError);
  EXPECT_EQ(names(folder.path()), before);
}

TEST(RunGenerations, ATornLineIsLeftOut) {
  const TempDir folder;
  EXPECT_EQ(RunGenerations::read(folder.path()).begin(folder.path(), 0), 1);
  test::write_file(folder / "starts.jsonl", test::read_file(folder / "starts.jsonl") + R"({"start":2,"af)");
  EXPECT_EQ(RunGenerations::read(folder.path()).begin(folder.path(), 40), 2);
  const RunGenerations starts = RunGenerations::read(folder.path());
  EXPECT_EQ(starts.newest(), 2);
  EXPECT_EQ(starts.superseded_by(1, 40), 0);
  EXPECT_EQ(starts.superseded_by(1, 41), 2);
  EXPECT_EQ(starts.superseded_by(2, 41), 0);
  EXPECT_EQ(starts.superseded_by(0, 1), 1) << "what has no number is older than all";
}

// A process without descriptors can read nothing: that says nothing about the checkpoint.
TEST(CheckpointStore, WhatCannotBeReadNowIsNotDamage) {
  if (!test::kNeedsNoDescriptors) GTEST_SKIP() << "a sanitizer opens descriptors to check what an error is";
  const TempDir folder;
  MemoryLog log;
  {
    CheckpointStore store(folder.path(), 0, log);
    for (const int step : {10, 20}) store.save(SampleSnapshot(step).get());
  }
  const auto codes = test::run_ranks(1, [&](int) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 1024};
    check(Sys{::setrlimit(RLIMIT_NOFILE, &none)}, "setrlimit");
    try {
      load_checkpoint(folder / "step-00000020");
    } catch (const SystemError& error) {
      ::_exit(error.error_number() == EMFILE ? 42 : 1);
    }
  });
  EXPECT_EQ(codes, std::vector<int>{42});
  EXPECT_EQ(CheckpointStore(folder.path(), 0, log).latest()->state.step, 20);
}

TEST(CheckpointStore, FilesOfAnotherCheckpointAreRefused) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  for (const int step : {10, 20}) store.save(SampleSnapshot(step).get());
  const auto from = folder.path() / "step-00000010", to = folder.path() / "step-00000020";
  fs::copy_file(from / "model.safetensors", to / "model.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_THROW(store.load(to), DataError);
  fs::remove_all(to);
  fs::rename(from, to);
  EXPECT_FALSE(store.latest()) << "a checkpoint under another step's name";
}

TEST(CheckpointStore, LeavesAloneWhatIsNotACheckpoint) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 1, log);
  for (const char* name : {"step-1", "step-000000010x", "notes.txt", "step--0000001"}) {
    fs::create_directories(folder / name);
  }
  store.save(SampleSnapshot(5).get());
  store.save(SampleSnapshot(6).get());
  EXPECT_EQ(steps(store), (std::vector<std::int64_t>{6}));
  for (const char* name : {"step-1", "step-000000010x", "notes.txt", "step--0000001"}) {
    EXPECT_TRUE(fs::exists(folder / name)) << name;
  }
}

TEST(CheckpointStore, CleansWhatDeadWritersLeft) {
  const TempDir folder;
  MemoryLog log;
  {
    CheckpointStore before(folder.path(), 0, log);
    for (const int step : {10, 20, 30}) before.save(SampleSnapshot(step).get());
  }
  fs::create_directories(folder / ".staged-step-00000040");
  test::write_file(folder / ".staged-step-00000040/model.safetensors", "half");
  fs::rename(folder / "step-00000010", folder / ".trash-step-00000010");
  // Killed between the two renames of a file system without exchange: the old one is still the good one.
  fs::rename(folder / "step-00000030", folder / ".replaced-step-00000030");

  CheckpointStore store(folder.path(), 0, log);
  EXPECT_EQ(steps(store), (std::vector<std::int64_t>{20, 30}));
  EXPECT_EQ(store.latest()->state.step, 30);
  EXPECT_TRUE(fs::exists(folder / ".staged-step-00000040")) << "reading must not touch anything";
  store.begin_writing(0, Deadline::never());
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000020", "step-00000030"}));
}

TEST(CheckpointStore, HasOneWriter) {
  const TempDir folder;
  MemoryLog log;
  test::ManualClock clock;
  CheckpointStore first(folder.path(), 0, log);
  first.begin_writing(0, Deadline::never());
  CheckpointStore second(folder.path(), 0, log);
  try {
    second.begin_writing(0, Deadline::after(Duration::zero(), clock));
    FAIL() << "two writers";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(::getpid())));
  }
  EXPECT_FALSE(second.latest()) << "reading needs no lock";
}

TEST(CheckpointStore, SaysForWhomItWaits) {
  const TempDir folder;
  MemoryLog log;
  auto first = std::make_unique<CheckpointStore>(folder.path(), 0, log);
  first->begin_writing(0, Deadline::never());
  std::thread holder([&] {
    const Deadline limit = Deadline::after(std::chrono::seconds(30));
    while (log.warnings().empty() && !limit.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    first.reset();
  });
  CheckpointStore second(folder.path(), 0, log);
  second.begin_writing(0, Deadline::after(std::chrono::seconds(60)), std::chrono::milliseconds(20));
  holder.join();
  EXPECT_THAT(log.warnings(), HasSubstr("held by process " + std::to_string(::getpid())));
}

// A process that is refused must not have changed anything of the run that continues.
TEST(CheckpointStore, TouchesNothingBeforeTheLock) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore first(folder.path(), 0, log);
  first.save(SampleSnapshot(1).get());
  fs::create_directories(folder / ".staged-step-00000002");
  const auto before = fs::last_write_time(folder.path());
  CheckpointStore second(folder.path(), 0, log);
  EXPECT_THROW(second.begin_writing(0, Deadline::after(Duration::zero())), SystemError);
  EXPECT_EQ(fs::last_write_time(folder.path()), before) << "a name was made or removed";
}

TEST(CheckpointStore, SaysAtOnceWhenItCannotWrite) {
  const TempDir folder;
  MemoryLog log;
  test::write_file(folder / "file", "x");
  CheckpointStore blocked(folder / "file", 0, log), below(folder / "file" / "below", 0, log);
  EXPECT_THROW(blocked.begin_writing(0, Deadline::never()), UsageError);
  EXPECT_THROW(below.begin_writing(0, Deadline::never()), UsageError);
  CheckpointStore greedy(folder / "greedy", 0, log);
  try {
    greedy.begin_writing(1ULL << 60, Deadline::never());
    FAIL() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_THAT(error.what(), HasSubstr("1152921504606846976"));
  }
}

}  // namespace
}  // namespace dtrain
