// Every system call of resuming and saving fails, is cut short or stalls in turn: no checkpoint that verifies
// is lost, nobody fails because of a stall, and training ends with the weights of an undisturbed run. CI
// draws some of the cases (the seed is printed, and can be given as DTRAIN_FAULT_SEED); DTRAIN_FAULT_ROUNDS=0
// goes through all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/fault/checkpoint/failing.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

/// The `number`-th `call` of rank 0 on a file of the run meets `fault`, `times` times.
struct Case {
  std::string call;
  int number = 1, times = 1;
  std::string fault;

  std::string rule(const fs::path& run_dir) const {
    return call + "," + run_dir.string() + "/*," + std::to_string(number) + "," + std::to_string(times) +
           "," + fault;
  }
};

class EachCall : public testing::Test {
 protected:
  // Leaves a run with checkpoints of steps 3 and 6, and one that continues to step 12 undisturbed.
  void SetUp() override {
    write_small_dataset(folder_ / "data", 480, 40);
    ASSERT_EQ(run(base(), 6, "").exit_code, 0);
    fs::copy(base(), folder_ / "undisturbed", fs::copy_options::recursive);
    const RunResult whole = run(folder_ / "undisturbed", 12, "trace,*/undisturbed/*,1,0,0");
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    weights_[1] = final_weights(folder_ / "undisturbed");
    std::istringstream log(read_file(fail_log()));
    std::string call, path;
    while (log >> call >> path) ++counts_[call];
    fs::remove(fail_log());
  }

  /// What `world` workers that continue from the base end with; sums run in another order for each number of
  /// them.
  std::size_t weights(int world) {
    if (!weights_.contains(world)) {
      const fs::path run_dir = folder_ / ("undisturbed-" + std::to_string(world));
      fs::copy(base(), run_dir, fs::copy_options::recursive);
      const RunResult result = run(run_dir, 12, "", world);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      weights_[world] = final_weights(run_dir);
    }
    return weights_[world];
  }

  /// How long two workers may wait for each other in a step, in milliseconds: longer than it takes them to
  /// start, train and end when nothing stalls, whatever else this machine does.
  int timeout_for_two() {
    const auto begun = std::chrono::steady_clock::now();
    weights(2);
    const auto took = std::chrono::steady_clock::now() - begun;
    return std::clamp(static_cast<int>(took / std::chrono::milliseconds(1)), 500, 3000);
  }
  static std::vector<std::string> collective_timeout(int milliseconds) {
    return {"--collective-timeout", std::to_string(milliseconds / 1000.0)};
  }

  fs::path base() const { return folder_ / "base"; }
  fs::path fail_log() const { return folder_ / "failed"; }

  RunResult run(const fs::path& run_dir, int steps, const std::string& fail, int world = 1,
                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--model",
                                          "mlp",
                                          "--data-dir",
                                          (folder_ / "data").string(),
                                          "--epochs",
                                          "1",
                                          "--global-batch-size",
                                          "32",
                                          "--eval-every",
                                          "0",
                                          "--checkpoint-every",
                                          "3",
                                          "--log-every",
                                          "1",
                                          "--keep-checkpoints",
                                          "0",
                                          "--max-steps",
                                          std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunOptions options;
    preload_failing_calls(options, fail, fail_log());
    options.timeout = std::chrono::seconds(180);
    return train({.start = world == 1 ? Start::alone : Start::launcher,
                  .world = world,
                  .launcher_arguments = {},
                  .arguments = arguments,
                  .run_dir = run_dir,
                  .options = options});
  }

  static std::map<std::int64_t, std::size_t> checkpoints(const fs::path& run_dir) {
    std::map<std::int64_t, std::size_t> found;
    NullLog log;
    for (const auto& entry : CheckpointStore(run_dir / "checkpoints", 0, log).list()) {
      found[entry.step] = std::hash<std::string>()(read_file(entry.path / "model.safetensors"));
      load_checkpoint(entry.path);  // throws for one that is not whole
    }
    return found;
  }

  /// One case on a copy of the run with two checkpoints.
  void meet(const Case& fault, int world = 1, const std::vector<std::string>& more = {}) {
    const fs::path run_dir = folder_ / "run";
    fs::remove_all(run_dir);
    fs::copy(base(), run_dir, fs::copy_options::recursive);
    const auto before = checkpoints(run_dir);
    RunResult result = run(run_dir, 12, fault.rule(run_dir), world, more);
    const std::string told = result.err;
    EXPECT_TRUE(fs::exists(fail_log())) << "the fault was not met\n" << told;
    fs::remove(fail_log());
    auto after = checkpoints(run_dir);
    for (const auto& [step, hash] : before) EXPECT_EQ(after[step], hash) << "step " << step << "\n" << told;
    if (fault.fault.ends_with("ms")) {
      EXPECT_EQ(result.exit_code, 0) << told;
    }
    if (result.exit_code != 0) {
      EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::system)) << told;
      result = run(run_dir, 12, "", world, more);
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    EXPECT_EQ(final_weights(run_dir), weights(world)) << told;
    std::vector<std::int64_t> steps;
    for (const auto& line : step_lines(run_dir)) steps.push_back(line.step);
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})) << told;
  }

  TempDir folder_;
  std::map<int, std::size_t> weights_;  ///< by the number of workers
  std::map<std::string, int> counts_;   ///< calls on files of the run, from step 6 to step 12
};

std::vector<Case> drawn(std::vector<Case> all, std::size_t most) {
  const char* rounds = std::getenv("DTRAIN_FAULT_ROUNDS");
  if (rounds != nullptr) most = std::strtoul(rounds, nullptr, 10);
  if (most == 0 || most >= all.size()) return all;
  const char* given = std::getenv("DTRAIN_FAULT_SEED");
  const auto seed =
      given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  std::printf("%zu of %zu cases, seed %u\n", most, all.size(), seed);
  std::mt19937 generator(seed);
  std::shuffle(all.begin(), all.end(), generator);
  all.resize(most);
  return all;
}

TEST_F(EachCall, MayFailOnceOrTwice) {
  std::vector<Case> all;
  for (const auto& [call, count] : counts_) {
    for (int number = 1; number <= count; ++number) {
      for (const int error : {EIO, ESTALE, ENOSPC, EMFILE, EINTR}) {
        for (const int times : {1, 2}) all.push_back({call, number, times, std::to_string(error)});
      }
      if (call == "read" || call == "write") all.push_back({call, number, 1, "short"});
    }
  }
  EXPECT_GT(all.size(), 400U);
  for (const Case& one : drawn(all, 24)) {
    SCOPED_TRACE(one.rule("RUN"));
    meet(one);
  }
}

// Ten times as long as the peers wait in a step.
TEST_F(EachCall, MayStall) {
  const int timeout_ms = timeout_for_two();
  const std::string stall = std::to_string(10 * timeout_ms) + "ms";
  std::vector<Case> all;
  for (const auto& [call, count] : counts_) {
    for (int number = 1; number <= count; ++number) all.push_back({call, number, 1, stall});
  }
  std::printf("%zu calls, each stalled for %s\n", all.size(), stall.c_str());
  for (const Case& one : drawn(all, 2)) {
    SCOPED_TRACE(one.rule("RUN"));
    meet(one, 2, collective_timeout(timeout_ms));
  }
}

// A disk that takes longer than the steps between two checkpoints: training does not wait for it.
TEST_F(EachCall, MayStallAgainAndAgain) {
  const int timeout_ms = timeout_for_two();
  const std::string stall = ",1,0," + std::to_string(timeout_ms + timeout_ms / 2) + "ms";
  for (const std::string rule :
       {"fsync,*/run/*", "write,*/run/checkpoints/*", "open,*/run/checkpoints/.staged*"}) {
    const fs::path run_dir = folder_ / "run";
    fs::remove_all(run_dir);
    fs::copy(base(), run_dir, fs::copy_options::recursive);
    const RunResult result = run(run_dir, 12, rule + stall, 2, collective_timeout(timeout_ms));
    EXPECT_EQ(result.exit_code, 0) << rule << "\n" << result.err;
    EXPECT_TRUE(fs::exists(fail_log()));
    EXPECT_EQ(final_weights(run_dir), weights(2));
  }
}

}  // namespace
}  // namespace dtrain::test
