// kill -9 at any moment, whatever way the work is divided: one cause is named, no process is left, and the
// same command continues to the very weights and losses of a run that was never disturbed.
#include <gmock/gmock.h>

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "tests/launch/option_test.h"
#include "tests/launch/running.h"

namespace dtrain::test {
namespace {

struct StrategyCase {
  const char* name;
  int world;
  std::vector<std::string> arguments;
  int servers = 0;
};

void PrintTo(const StrategyCase& given, std::ostream* out) { *out << given.name; }

// With a checkpoint every seven steps; a kill comes in the first half, so that a fast run is not over before.
constexpr int kSteps = 80;

class KilledStrategies : public OptionTest, public testing::WithParamInterface<StrategyCase> {
 protected:
  void SetUp() override { write_file(folder_ / "book.txt", learnable_text()); }

  TrainingRun training(const std::string& name) {
    const StrategyCase& given = GetParam();
    TrainingRun run = run_named(
        name, given.world,
        {"--model=transformer", "--dataset=text:book.txt,context=16", "--data-dir=" + folder_.path().string(),
         "--width=32", "--global-batch-size=16", "--log-every=1", "--optimizer=adamw", "--lr=0.003",
         "--checkpoint-every=7", "--eval-every=0", "--max-steps=" + std::to_string(kSteps)},
        given.arguments);
    run.start = Start::launcher;
    if (given.servers > 0) run.launcher_arguments = {"--servers=" + std::to_string(given.servers)};
    run.options.environment["DTRAIN_TEST_MARK"] = run.run_dir.string();
    return run;
  }

  /// Kills `rank` once the run has reached `step`. False: the run was over first.
  static bool kill_at(const TrainingRun& run, int rank, int step, pid_t launcher) {
    while (::kill(launcher, 0) == 0) {
      const auto ranks = ranks_marked("DTRAIN_TEST_MARK", run.run_dir.string());
      if (ranks.contains(rank) && reached(run, step)) return ::kill(ranks.at(rank), SIGKILL) == 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static bool reached(const TrainingRun& run, int step) {
    if (step == 0) return true;
    if (!std::filesystem::exists(run.run_dir / "metrics.jsonl")) return false;
    const std::string text = read_file(run.run_dir / "metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n') >= step;
  }

  /// Everything the newest checkpoint holds in numbers, by file.
  static std::map<std::string, std::size_t> state(const std::filesystem::path& run_dir) {
    std::filesystem::path newest;
    for (const auto& entry : std::filesystem::directory_iterator(run_dir / "checkpoints"))
      if (entry.is_directory()) newest = std::max(newest, entry.path());
    std::map<std::string, std::size_t> hashes;
    for (const auto& entry : std::filesystem::directory_iterator(newest))
      if (entry.path().extension() == ".safetensors")
        hashes[entry.path().filename().string()] = std::hash<std::string>{}(read_file(entry.path()));
    return hashes;
  }
};

// One line with a cause, and it is that one.
MATCHER_P(NamesOnce, who, "") {
  const std::string text = arg;
  const std::size_t at = text.find("failed first: ");
  if (at == std::string::npos || text.find("failed first: ", at + 1) != std::string::npos) return false;
  const std::string line = text.substr(text.rfind('\n', at) + 1, text.find('\n', at) - text.rfind('\n', at));
  return line.find(who + " ") != std::string::npos && line.find("killed by SIGKILL") != std::string::npos;
}

TEST_P(KilledStrategies, NameOneCauseAndGoOnBitForBit) {
  const int rounds = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1);
  const int seed =
      rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  expect_trained(training("whole"));
  for (int round = 0, missed = 0; round < rounds && !HasFailure();) {
    const TrainingRun rest = training("round" + std::to_string(round) + "-" + std::to_string(missed));
    const int rank = static_cast<int>(random() % static_cast<unsigned>(GetParam().world));
    const int step = static_cast<int>(random() % (kSteps / 2));
    SCOPED_TRACE("rank " + std::to_string(rank) + " killed at step " + std::to_string(step));
    TrainingRun run = rest;
    bool killed = false;
    run.options.while_running = [&](pid_t launcher) { killed = kill_at(run, rank, step, launcher); };
    const RunResult result = train(run);
    if (result.exit_code == 0 && ++missed < 10) continue;  // it was through before the kill
    ASSERT_TRUE(killed) << result.err;
    EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
    EXPECT_THAT(result.err, NamesOnce("rank " + std::to_string(rank)));
    EXPECT_EQ(count_marked("DTRAIN_TEST_MARK", run.run_dir.string()), 0) << "an orphan";
    expect_trained(rest);
    EXPECT_EQ(losses(rest.run_dir), losses(folder_ / "whole"));
    EXPECT_EQ(state(rest.run_dir), state(folder_ / "whole"));
    ++round;
  }
}

const StrategyCase kStrategyCases[] = {
    {"ddp", 2, {}},
    {"virtual_workers", 3, {"--virtual-workers=4"}},
    {"placed_virtual_workers", 3, {"--virtual-workers=4", "--place=head=cpu:1", "--shard=optimizer"}},
    {"devices", 2, {"--devices=cpu:0,cpu:1"}},
    {"optimizer_shards", 3, {"--shard=optimizer"}},
    {"gradient_shards", 3, {"--shard=gradients"}},
    {"parameter_shards", 3, {"--shard=parameters"}},
    {"hybrid_shards", 4, {"--shard=parameters", "--shard-group=2"}},
    {"tensor", 2, {"--tensor=2"}},
    {"sequence", 2, {"--tensor=2", "--sequence-parallel"}},
    {"tensor_mesh", 4, {"--mesh=dp=2,tp=2"}},
    {"pipeline_gpipe", 2, {"--pipeline=2", "--micro-batches=4", "--schedule=gpipe"}},
    {"pipeline_mesh", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--schedule=1f1b"}},
    {"pipeline_interleaved",
     2,
     {"--pipeline=2", "--micro-batches=4", "--schedule=interleaved", "--chunks=2"}},
    {"pipeline_of_devices", 2, {"--pipeline=2", "--devices=cpu:0,cpu:1", "--micro-batches=4"}},
    {"pipeline_of_devices_optimizer_shards",
     2,
     {"--pipeline=2", "--devices=cpu:0,cpu:1", "--micro-batches=4", "--shard=optimizer"}},
    {"tensor_pipeline", 4, {"--mesh=pp=2,tp=2", "--micro-batches=4"}},
    {"tensor_virtual_workers", 4, {"--mesh=dp=2,tp=2", "--virtual-workers=4"}},
    {"tensor_optimizer_shards", 4, {"--mesh=dp=2,tp=2", "--shard=optimizer"}},
    {"tensor_gradient_shards", 4, {"--mesh=dp=2,tp=2", "--shard=gradients"}},
    {"tensor_parameter_shards", 4, {"--mesh=dp=2,tp=2", "--shard=parameters", "--sequence-parallel"}},
    {"pipeline_optimizer_shards", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--shard=optimizer"}},
    {"pipeline_virtual_workers", 4, {"--pipeline=2", "--virtual-workers=4"}},
    {"pipeline_gradient_shards", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--shard=gradients"}},
    {"pipeline_parameter_shards", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--shard=parameters"}},
    {"tensor_powersgd", 4, {"--mesh=dp=2,tp=2", "--compress=powersgd:2"}},
    {"pipeline_powersgd", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--compress=powersgd:2"}},
    {"placed", 2, {"--place=head=cpu:1"}},
    {"local_sgd", 2, {"--sync-every=4"}},
    {"diloco", 4, {"--shard=optimizer", "--shard-group=2", "--sync-every=4", "--outer-lr=0.7"}},
    {"powersgd", 2, {"--compress=powersgd:2"}},
    {"server", 2, {}, 1},
};

INSTANTIATE_TEST_SUITE_P(Forms, KilledStrategies, testing::ValuesIn(kStrategyCases),
                         [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace dtrain::test
