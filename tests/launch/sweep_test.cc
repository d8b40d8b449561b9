// `dtrain sweep` through the real programs: runs, failures, signals, and kill -9 at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/launch/running.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using test::Json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kTiny =
    R"("model": "linear", "dataset": "synthetic:1x4x4,3,96", "batch-size": 16)";

class Sweep : public testing::Test {
 protected:
  /// Writes the sweep's file: kTiny and `options`; `more` are further fields.
  fs::path config(const std::string& options, const std::string& more = "") {
    const fs::path file = folder_ / "sweep.json";
    write_file(file, "{" + more + "\"options\": {" + std::string(kTiny) + ", " + options + "}}");
    return file;
  }
  std::vector<std::string> command(const fs::path& file, const std::string& name,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> line{program("dtrain"), "sweep",        file,
                                  "--sweep-dir",     folder_ / name, "--jobs=2"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  RunResult sweep(const fs::path& file, const std::string& name,
                  const std::vector<std::string>& more = {}) const {
    return run(command(file, name, more), limited_to(std::chrono::seconds(100)));
  }
  Json results(const std::string& name) const {
    return Json::parse(read_file(folder_ / name / "results.json"));
  }
  fs::path run_of(const std::string& name, const std::string& run) const {
    return folder_ / name / "runs" / run;
  }

  TempDir folder_;
};

TEST_F(Sweep, TrainsEachRunAndSortsThem) {
  const fs::path file = config(R"("epochs": 2, "lr": [0.001, 0.5], "seed": [0, 1])");
  const RunResult done = sweep(file, "s");
  ASSERT_EQ(done.exit_code, 0) << done.out << done.err;
  EXPECT_THAT(done.err, HasSubstr("lr=0.5,seed=1: started\n"));
  EXPECT_THAT(done.err,
              ContainsRegex("lr=0.5,seed=1: finished: accuracy [01]\\.[0-9]+, loss [0-9.]+, [0-9.]+ s\n"));
  EXPECT_THAT(done.out, ContainsRegex("^#     lr  seed  accuracy    loss  seconds\n1  "));
  EXPECT_THAT(done.out, HasSubstr("dtrain report " + (folder_ / "s").string() + "/runs/*"));
  const Json all = results("s");
  ASSERT_EQ(all["runs"].size(), 4U);
  EXPECT_EQ(all["metric"], "accuracy");
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_GE(all["runs"][i - 1]["values"]["accuracy"], all["runs"][i]["values"]["accuracy"]);
  EXPECT_EQ(losses(run_of("s", "lr=0.5,seed=1")).size(), 2U) << "12 steps: the tenth and the last";

  // Once more: nothing is done twice, and the results are there again, sorted by what is asked for.
  const RunResult again = sweep(file, "s", {"--json", "--metric", "loss"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("started")));
  EXPECT_THAT(again.err, HasSubstr("4 of 4 runs have ended"));
  const Json by_loss = Json::parse(again.out);
  EXPECT_LE(by_loss["runs"][0]["values"]["loss"], by_loss["runs"][3]["values"]["loss"]);
}

TEST_F(Sweep, BadInputIsRefusedBeforeAnythingStarts) {
  const auto refused = [&](const fs::path& file, const std::vector<std::string>& more = {}) {
    const RunResult result = sweep(file, "s", more);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_FALSE(fs::exists(folder_ / "s")) << "nothing is begun";
    return result.err;
  };
  EXPECT_THAT(refused(config(R"("lrr": 1)")),
              HasSubstr("options.lrr: dtrain train has no option of that name; did you mean \"lr\"?"));
  EXPECT_THAT(refused(config(R"("lr": [0.1, "fast"])")),
              HasSubstr("run lr=fast: --lr (from command line): expected a number"));
  EXPECT_THAT(refused(config(R"("global-batch-size": [64])")),
              HasSubstr("expected nothing with --global-batch-size"));
  EXPECT_THAT(refused(config(R"("lr": [])")), HasSubstr("options.lr: expected at least one value"));
  EXPECT_THAT(refused(config(R"("lr": 1)", R"("jbos": 2, )")), HasSubstr("jbos: unknown field"));
  EXPECT_THAT(refused(config(R"("lr": 1)"), {"--jobs=none"}), HasSubstr("--jobs"));
  EXPECT_THAT(refused(config(R"("lr": 1)", R"("program": "./no-such-program", )")),
              HasSubstr("./no-such-program: No such file"));
  EXPECT_THAT(
      refused(config(R"("lr": [0.1, 0.2])"), {"--metric=f1"}),
      HasSubstr("run lr=0.1: metric: expected one of loss, accuracy, top5_accuracy, which this run can "
                "report, got f1"));
  EXPECT_EQ(run({program("dtrain"), "sweep"}).exit_code, 2);
}

TEST_F(Sweep, AMetricThatAProgramDoesNotGiveEndsItAfterTheFirstRun) {
  const char* examples = std::getenv("DTRAIN_EXAMPLES");
  const std::string own = std::string(examples == nullptr ? "." : examples) + "/own_model";
  const fs::path file = folder_ / "own.json";
  write_file(file, R"({"program": ")" + own +
                       R"(", "metric": "f1", "options": {"max-steps": 2, "seed": [1, 2, 3, 4, 5, 6]}})");
  const RunResult done = sweep(file, "s");
  EXPECT_EQ(done.exit_code, 2) << done.err;
  EXPECT_THAT(done.err, HasSubstr("metric: expected one of "));
  EXPECT_THAT(done.err, Not(HasSubstr("seed=6: started")));
  const RunResult again = sweep(file, "s");
  EXPECT_EQ(again.exit_code, 2) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("started")));
  EXPECT_EQ(sweep(file, "s", {"--metric=loss"}).exit_code, 0);
}

TEST_F(Sweep, AFailureIsNotedWithItsCauseAndTheOthersGoOn) {
  const fs::path file = config(
      R"("max-steps": 3, "data-dir": "/nowhere", "dataset": ["fashion-mnist", "synthetic:1x4x4,3,96"])");
  const std::string text = read_file(file);  // one "dataset" is enough
  write_file(file, std::string(text).replace(text.find(R"("dataset": "synthetic)"), 34, ""));
  const RunResult done = sweep(file, "s");
  EXPECT_EQ(done.exit_code, 1) << done.out << done.err;
  EXPECT_THAT(done.err, ContainsRegex("dataset=fashion-mnist: failed: dtrain: rank 0: /nowhere"));
  EXPECT_THAT(done.out, ContainsRegex("-  +fashion-mnist .* failed: dtrain: rank 0: "));
  EXPECT_THAT(done.out, ContainsRegex("1  synthetic:1x4x4,3,96 "));
  const RunResult again = sweep(file, "s");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, Not(HasSubstr("started"))) << "a failure is an end";
  const RunResult retried = sweep(file, "s", {"--retry-failed", "--stop-on-failure"});
  EXPECT_EQ(retried.exit_code, 1);
  EXPECT_THAT(retried.err, HasSubstr("dataset=fashion-mnist: started"));
}

TEST_F(Sweep, ASecondSweepKeepsOutOfTheFolder) {
  const fs::path file = config(R"("epochs": 100000, "seed": [1, 2])");
  Running first(command(file, "s"));
  ASSERT_TRUE(eventually([&] { return fs::exists(run_of("s", "seed=2") / "metrics.jsonl"); })) << first.err();
  const RunResult second = sweep(file, "s");
  EXPECT_EQ(second.exit_code, 6) << second.err;
  EXPECT_THAT(second.err,
              HasSubstr("expected no other writer, found process " + std::to_string(first.pid())));

  // And Ctrl-C ends it in order: each run with a checkpoint.
  first.signal(SIGINT);
  EXPECT_EQ(first.wait(std::chrono::seconds(60)), 75) << first.err();
  EXPECT_THAT(first.err(), HasSubstr("seed=1: interrupted; resumes with the sweep"));
  EXPECT_TRUE(first.marked().empty());
  for (const char* name : {"seed=1", "seed=2"}) {
    const Json summary = Json::parse(read_file(run_of("s", name) / "summary.json"));
    EXPECT_EQ(summary["status"], "stopped");
    EXPECT_NE(final_weights(run_of("s", name)), 0U);
  }
}

TEST_F(Sweep, OwnProgramsAndSeveralWorkersARun) {
  const char* examples = std::getenv("DTRAIN_EXAMPLES");
  ASSERT_NE(examples, nullptr);
  const fs::path file = folder_ / "own.json";
  const std::string program_name = std::string(examples) + "/own_model";
  write_file(file, R"({"program": ")" + program_name +
                       R"(", "method": "random", "count": 3, "seed": 5, "nproc_per_node": 2, "metric": "loss",
                         "options": {"max-steps": 6, "lr": {"min": 0.01, "max": 0.5, "scale": "log"}}})");
  const RunResult done =
      run({program("dtrain"), "sweep", "--json", "--jobs=1", "--sweep-dir", folder_ / "s", file},
          limited_to(std::chrono::seconds(60)));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const Json all = Json::parse(done.out);
  ASSERT_EQ(all["runs"].size(), 3U);
  EXPECT_LE(all["runs"][0]["values"]["loss"], all["runs"][2]["values"]["loss"]);
  const Json summary =
      Json::parse(read_file(fs::path(all["runs"][0]["run_dir"].get<std::string>()) / "summary.json"));
  EXPECT_EQ(summary["world_size"], 2);

  write_file(file, R"({"program": ")" + program_name + R"(", "options": {"modle": "x"}})");
  const RunResult refused = run({program("dtrain"), "sweep", file, "--sweep-dir", folder_ / "t"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("own.json: run run: own_model: "));
  EXPECT_THAT(refused.err, HasSubstr("unknown option --modle"));
}

/// Each run's folder: finished once, each logged step once.
void expect_each_step_once(const fs::path& run_dir, std::int64_t steps) {
  const std::vector<StepLine> lines = step_lines(run_dir);
  ASSERT_EQ(static_cast<std::int64_t>(lines.size()), steps) << run_dir;
  for (std::int64_t i = 0; i < steps; ++i)
    EXPECT_EQ(lines[static_cast<std::size_t>(i)].step, i + 1) << run_dir;
}

ino_t inode_of(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_ino : 0;
}

// Kill -9 at a drawn moment, again and again until a start comes to the end.
TEST_F(Sweep, NoRunIsLostOrDoneTwiceHoweverOftenItIsKilled) {
  constexpr std::int64_t kSteps = 900;
  const fs::path file = config(R"("max-steps": 900, "log-every": 1, "checkpoint-every": 60, "lr": 0.01,
                                  "seed": [1, 2, 3, 4, 5, 6])");
  const auto began = std::chrono::steady_clock::now();
  const RunResult whole = sweep(file, "whole");
  const auto length = std::chrono::steady_clock::now() - began;
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  const auto seed = static_cast<unsigned>(
      rounds_from_environment("DTRAIN_TEST_SEED", static_cast<int>(std::random_device{}() >> 1)));
  std::printf("DTRAIN_TEST_SEED=%u\n", seed);
  std::mt19937 random(seed);
  const int most = rounds_from_environment("DTRAIN_TEST_ROUNDS", 3);
  std::map<std::string, ino_t> finished;
  int killed = 0;
  for (int round = 0; round < most; ++round) {
    Running one(command(file, "killed"));
    std::this_thread::sleep_for(length * std::uniform_real_distribution<>(0.05, 0.6)(random));
    one.signal(SIGKILL);
    killed += one.wait() == 128 + SIGKILL ? 1 : 0;
    ASSERT_TRUE(eventually([&] { return one.marked().empty(); })) << "what it started outlives it";
    for (const auto& [name, inode] : finished)
      EXPECT_EQ(inode_of(run_of("killed", name) / "summary.json"), inode) << name << " was done again";
    for (int i = 1; i <= 6; ++i) {
      const std::string name = "seed=" + std::to_string(i);
      if (const ino_t inode = inode_of(run_of("killed", name) / "summary.json"); inode != 0)
        finished[name] = inode;
    }
  }
  const RunResult last = sweep(file, "killed");
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_GT(killed, 0) << "every start had come to its end before";
  for (const auto& [name, inode] : finished)
    EXPECT_EQ(inode_of(run_of("killed", name) / "summary.json"), inode) << name << " was done again";
  for (int i = 1; i <= 6; ++i) {
    const std::string name = "seed=" + std::to_string(i);
    expect_each_step_once(run_of("killed", name), kSteps);
    EXPECT_EQ(final_weights(run_of("killed", name)), final_weights(run_of("whole", name))) << name;
  }
  EXPECT_EQ(results("killed")["runs"].size(), 6U);
}

}  // namespace
}  // namespace dtrain::test
