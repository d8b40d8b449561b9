// Checkpoints that several ranks write together and any number reads: in two phases, complete or absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <thread>

#include "runtime/checkpoint/checkpoint_saver.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/cuts.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::Cut;
using test::MemoryLog;
using test::ShardGroup;
using test::ShardSample;
using test::TempDir;
using testing::HasSubstr;

TrainingState at_step(std::int64_t step) {
  TrainingState state;
  state.step = step;
  return state;
}

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(directory)) result.push_back(entry.path().filename());
  std::sort(result.begin(), result.end());
  return result;
}

// What the error of `call` says.
template <class Kind, class Call>
std::string says(Call call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

TEST(Shards, AnyNumberOfRanksReadsWhatAnyNumberWrote) {
  for (const Cut saved : test::kAllCuts) {
    for (const int writers : {1, 2, 3, 4}) {
      const TempDir folder;
      MemoryLog log;
      const fs::path path = ShardGroup(folder.path(), 0, writers, log).save(40, saved);
      const auto newest = CheckpointStore(folder.path(), 0, log).latest();
      ASSERT_TRUE(newest) << log.warnings();
      ASSERT_EQ(newest->path, path);
      for (const Cut wanted : test::kAllCuts) {
        for (const int readers : {1, 2, 3, 4}) {
          for (int rank = 0; rank < readers; ++rank) {
            const Checkpoint own =
                load_checkpoint(path, CheckValues::later);  // as a process of its own would
            EXPECT_EQ(ShardSample::mismatch(own, 40, wanted, {rank, readers}), "")
                << name_of(saved) << " by " << writers << ", read as " << name_of(wanted) << " by rank "
                << rank << " of " << readers;
          }
        }
      }
    }
  }
}

TEST(Shards, WhoHoldsEverythingWritesTheFilesOfOneProcess) {
  const TempDir folder;
  MemoryLog log;
  const fs::path alone = ShardGroup(folder / "alone", 0, 1, log).save(7, Cut::data);
  const fs::path among = ShardGroup(folder / "among", 0, 4, log).save(7, Cut::data);
  EXPECT_EQ(names(among),
            (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));
  for (const std::string& name : names(among)) {
    EXPECT_EQ(test::read_file(among / name), test::read_file(alone / name)) << name;
  }
  CheckpointStore plain(folder / "plain", 0, log);
  const fs::path saved = plain.save(ShardSample(7, Cut::data, {0, 1}).get());
  EXPECT_EQ(test::read_file(saved / "model.safetensors"), test::read_file(among / "model.safetensors"));
}

TEST(Shards, FilesAreNamedAndIndexedAsHuggingFaceDoes) {
  const TempDir folder;
  MemoryLog log;
  const fs::path path = ShardGroup(folder.path(), 0, 4, log).save(7, Cut::stages);
  EXPECT_THAT(names(path),
              testing::IsSupersetOf({"model-00001-of-00004.safetensors", "model-00004-of-00004.safetensors",
                                     "model.safetensors.index.json", "optimizer.safetensors.index.json",
                                     "optimizer-00002-of-00004.safetensors", "state.json"}));
  EXPECT_EQ(names(path).size(), 11U);
  const auto index = test::Json::read(path / "model.safetensors.index.json");
  std::uint64_t bytes = 0;
  for (const auto& [name, shape] : ShardSample::shapes()) {
    bytes += static_cast<std::uint64_t>(shape.product()) * sizeof(float);
    if (shape.product() == 0) continue;  // every stage has all of nothing
    const auto file = SafetensorsFile::open(path / index.at("weight_map").at(name).get<std::string>());
    ASSERT_NE(file.find(name), nullptr) << name;
    EXPECT_EQ(file.find(name)->shape, shape);
  }
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
}

TEST(Shards, TheIndexSaysWhatEachFileHolds) {
  const TempDir folder;
  MemoryLog log;
  const fs::path path = ShardGroup(folder.path(), 0, 2, log).save(7, Cut::rows);
  const auto index = test::Json::read(path / "model.safetensors.index.json");
  EXPECT_FALSE(index.at("weight_map").contains("fc1.weight")) << "half of it must not be taken for all of it";
  EXPECT_EQ(index.at("weight_map").at("scale"), "model-00001-of-00002.safetensors");
  const auto& cut = index.at("dtrain").at("tensors").at("fc1.weight");
  EXPECT_EQ(cut.at("shape"), (std::vector<int>{8, 12}));
  EXPECT_EQ(cut.at("dtype"), "F32");
  const auto& second = cut.at("pieces").at(1);
  EXPECT_EQ(second.at("file"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(second.at("begin"), (std::vector<int>{4, 0}));
  EXPECT_EQ(second.at("extent"), (std::vector<int>{4, 12}));
}

TEST(Shards, NothingIsThereBeforeTheCommit) {
  const TempDir folder;
  MemoryLog log;
  ShardGroup group(folder.path(), 0, 3, log);
  group.save(10, Cut::elements);
  group.prepare(20, Cut::elements);
  EXPECT_EQ(group.writer().list().size(), 1U);
  EXPECT_EQ(group.writer().latest()->state.step, 10);
  group.writer().abandon();
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000010"}));
  group.save(20, Cut::elements);  // the same step, after all
  group.save(20, Cut::rows);      // and once more
  EXPECT_EQ(ShardSample::mismatch(*group.writer().latest(), 20, Cut::data, {}), "");
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000010", "step-00000020"}));
  EXPECT_EQ(log.warnings(), "");
}

TEST(Shards, ACommitThatDoesNotHoldEverythingOnceIsRefused) {
  const TempDir folder;
  MemoryLog log;
  ShardGroup group(folder.path(), 0, 2, log);
  group.save(10, Cut::rows);
  test::Tensors tensors;
  NamedView upper = tensors.add<float>("w", {2, 3}, {1, 2, 3, 4, 5, 6}), lower = upper, other = upper;
  upper.part = TensorShard::slice({4, 3}, 0, 0, 2);
  lower.part = TensorShard::slice({4, 3}, 0, 2, 4);
  const auto commit = [&](const NamedView& first, const std::vector<NamedView>& second) {
    Snapshot snapshot{at_step(20), {first}, {}};
    group.store(0).prepare(snapshot, {0, 2});
    snapshot.model = second;
    group.store(1).prepare(snapshot, {1, 2});
    return says<UsageError>([&] { group.writer().commit(at_step(20), 2); });
  };
  EXPECT_EQ(commit(upper, {lower}), "no error");
  EXPECT_THAT(commit(upper, {}), HasSubstr("expected all 12 elements of [4, 3] in the shards, got 6"));
  EXPECT_THAT(commit(upper, {upper}), HasSubstr("expected each element once"));
  other.part = TensorShard::slice({5, 3}, 0, 2, 4);
  EXPECT_THAT(commit(upper, {other}), HasSubstr("expected float32 of shape [4, 3] in all shards"));
  NamedView column = tensors.add<float>("w", {4, 1}, {1, 2, 3, 4});
  column.part = TensorShard::slice({4, 3}, 1, 2, 3);
  EXPECT_THAT(commit(upper, {column}), HasSubstr("expected each element once"));
  NamedView misshapen = upper;
  misshapen.part = TensorShard::slice({4, 3}, 0, 0, 1);
  EXPECT_THROW(group.store(0).prepare(Snapshot{at_step(30), {misshapen}, {}}, {0, 2}), UsageError);
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000010", "step-00000020"}));
}

// A rank of an earlier start, cut off and not dead yet, writes on.
TEST(Shards, ARankOfAnEarlierStartChangesNothing) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore late(folder.path(), 0, log);
  {
    ShardGroup before(folder.path(), 0, 2, log);
    late.write_for(before.writer().writer_id());
  }
  ShardGroup group(folder.path(), 0, 2, log);
  late.prepare(ShardSample(10, Cut::data, {0, 1}).get(), {1, 2});
  group.prepare(10, Cut::rows);
  late.prepare(ShardSample(20, Cut::data, {0, 1}).get(), {1, 2});
  group.writer().commit(ShardSample(10, Cut::rows, {0, 2}).get().state, 2);
  EXPECT_EQ(ShardSample::mismatch(*group.writer().latest(), 10, Cut::rows, {1, 2}), "");
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000010"}))
      << "its leftovers are swept";
}

TEST(Shards, RolesAreChecked) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore nobody(folder.path(), 0, log);
  const ShardSample sample(1, Cut::data, {0, 1});
  EXPECT_THROW(nobody.prepare(sample.get(), {1, 2}), UsageError);
  EXPECT_THROW(nobody.writer_id(), UsageError);
  nobody.write_for("some-writer");
  EXPECT_THROW(nobody.commit({}, 2), UsageError);
}

// A shard that the committer cannot see: folders that are not shared.
TEST(Shards, AShardOnAnotherFileSystemIsNamed) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore here(folder / "here", 0, log), elsewhere(folder / "elsewhere", 0, log);
  fs::create_directories(folder / "elsewhere");
  here.begin_writing(0);
  elsewhere.write_for(here.writer_id());
  here.prepare(ShardSample(1, Cut::rows, {0, 2}).get(), {0, 2});
  elsewhere.prepare(ShardSample(1, Cut::rows, {1, 2}).get(), {1, 2});
  EXPECT_THAT(
      says<SystemError>([&] { here.commit(at_step(1), 2); }),
      testing::AllOf(HasSubstr("shard 2 of 2"), HasSubstr("one file system"), HasSubstr("was not saved")));
  EXPECT_TRUE(here.list().empty());
}

std::uint64_t bytes_read_so_far() {
  std::ifstream io("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  io >> key >> value;
  return value;
}

TEST(Shards, ReadsOnlyWhatItNeeds) {
  const TempDir folder;
  MemoryLog log;
  constexpr std::int64_t kScale = 100'000;  // embed.weight: 24 MB
  const fs::path path = ShardGroup(folder.path(), 0, 4, log).save(3, Cut::rows, kScale);
  const Checkpoint checkpoint = load_checkpoint(path, CheckValues::later);
  const Dims shape{10 * kScale, 6};
  const TensorShard wanted = TensorShard::slice(shape, 0, 2 * kScale, 2 * kScale + 1000);
  std::vector<float> target(static_cast<std::size_t>(wanted.count));
  const std::uint64_t before = bytes_read_so_far();
  checkpoint.model.read("embed.weight", wanted, {target.data(), DType::f32, {1000, 6}, {6, 1}});
  const std::uint64_t read = bytes_read_so_far() - before;
  EXPECT_GE(read, target.size() * sizeof(float));
  EXPECT_LE(read, target.size() * sizeof(float) + (64 << 10)) << "24 kB of 24 MB, and a header";
  EXPECT_EQ(target, test::values_of(wanted, ShardSample::full<float>(shape, 3, 0)));
}

/// The ranks of a job as threads, and what they agree with.
template <int world>
class RankThreads {
 public:
  /// Runs `body(rank, max_over_ranks)` on each.
  template <class Body>
  void run(Body body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([this, rank, body] {
        body(rank, [this, rank](std::int64_t value) {
          values_[static_cast<std::size_t>(rank)] = value;
          meet();
          const std::int64_t worst = std::ranges::max(values_);
          meet();
          return worst;
        });
      });
    }
  }
  void meet() { barrier_.arrive_and_wait(); }

 private:
  std::barrier<> barrier_{world};
  std::array<std::int64_t, world> values_ = {};
};

TEST(SaverShards, EachRankWritesInTheBackgroundAndTheCommitIsDecidedLater) {
  const TempDir folder;
  MemoryLog log;
  constexpr int kWorld = 3;
  ShardGroup group(folder.path(), 2, kWorld, log);
  RankThreads<kWorld>().run([&](int rank, const auto& agree) {
    CheckpointSaver saver(&group.store(rank), log, {.shard = {rank, kWorld}, .max_over_ranks = agree});
    for (std::int64_t step = 1; step <= 4; ++step) {
      EXPECT_TRUE(saver.free());
      const ShardSample sample(step, Cut::elements, {rank, kWorld});
      saver.save(sample.get());
      saver.wait(soon());
      EXPECT_FALSE(saver.free()) << "written here, not committed";
      EXPECT_THROW(saver.save(ShardSample(9, Cut::data, {0, 1}).get()), UsageError);
      if (rank == 0) {
        EXPECT_EQ(CheckpointStore(folder.path(), 0, log).list().size(),
                  static_cast<std::size_t>(std::min(step - 1, std::int64_t{2})));
      }
      saver.drain();
      saver.check();
    }
    EXPECT_EQ(saver.durable_step(), rank == 0 ? std::optional<std::int64_t>(4) : std::nullopt);
  });
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{".lock", "step-00000003", "step-00000004"}));
  EXPECT_EQ(ShardSample::mismatch(*group.writer().latest(), 4, Cut::columns, {1, 2}), "");
}

TEST(SaverShards, ARankThatFailsLeavesTheCheckpointBefore) {
  const TempDir folder;
  MemoryLog log;
  const fs::path checkpoints = folder / "checkpoints";
  ShardGroup group(checkpoints, 0, 2, log);
  group.save(1, Cut::rows);
  RankThreads<2> ranks;
  ranks.run([&](int rank, const auto& agree) {
    CheckpointSaver saver(&group.store(rank), log, {.shard = {rank, 2}, .max_over_ranks = agree});
    const ShardSample sample(2, Cut::rows, {rank, 2});
    if (rank == 0) saver.save(sample.get());
    if (rank == 0) saver.wait(soon());
    ranks.meet();
    if (rank == 1) {
      fs::rename(checkpoints, folder / "away");  // as if the second rank's disk were gone
      saver.save(sample.get());
      saver.wait(soon());
      fs::rename(folder / "away", checkpoints);
    }
    ranks.meet();
    saver.drain();
    if (rank == 1) {
      EXPECT_THAT(says<SystemError>([&] { saver.check(); }), HasSubstr("checkpoint of step 2 was not saved"));
    } else {
      EXPECT_THAT(says<Error>([&] { saver.check(); }), HasSubstr("another rank could not write"));
      EXPECT_EQ(names(checkpoints), (std::vector<std::string>{".lock", "step-00000001"}));
    }
    ranks.meet();
    // And then it works again.
    const ShardSample next(3, Cut::rows, {rank, 2});
    saver.save(next.get());
    saver.drain();
    EXPECT_NO_THROW(saver.check());
  });
  EXPECT_EQ(group.writer().latest()->state.step, 3);
}

TEST(SaverShards, AreNotSavedWithoutAWayToAgree) {
  const TempDir folder;
  MemoryLog log;
  CheckpointStore store(folder.path(), 0, log);
  EXPECT_THROW(CheckpointSaver(&store, log, {.shard = {0, 2}}), UsageError);
}

}  // namespace
}  // namespace dtrain
