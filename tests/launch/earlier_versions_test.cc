// Runs that earlier versions left are resumed, evaluated and drawn by this one: earlier/VERSION/ has what a
// version wrote until step 4, and the weights that it had two steps later. A version is added when it is
// released; none goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/trained.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

struct EarlierRun {
  friend void PrintTo(const EarlierRun& run, std::ostream* out) { *out << run.version << " " << run.run; }

  std::string version, run;
  int world;
  std::vector<std::string> arguments;  ///< as it was started, but for those that all have
};

class EarlierVersions : public testing::TestWithParam<EarlierRun> {
 protected:
  EarlierVersions() {
    fs::copy(recorded(), folder_ / "run", fs::copy_options::recursive);
    fs::remove(folder_ / "run" / "step-6.safetensors");
  }
  static fs::path recorded() { return fs::path(DTRAIN_EARLIER) / GetParam().version / GetParam().run; }
  RunResult resume() const {
    TrainingRun run{
        .start = Start::launcher,
        .world = GetParam().world,
        .launcher_arguments = {},
        .arguments = {"--model", "linear", "--dataset", "synthetic:1x4x4,3,64", "--max-steps", "6",
                      "--global-batch-size", "8", "--optimizer", "adamw", "--lr", "0.01", "--seed", "3"},
        .run_dir = folder_ / "run",
        .options = limited_to(std::chrono::seconds(60))};
    run.arguments.insert(run.arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
    return train(run);
  }

  TempDir folder_;
};

TEST_P(EarlierVersions, RunIsResumedToTheSameWeights) {
  const RunResult result = resume();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, testing::HasSubstr("resuming from step 4"));
  const Golden expected(recorded() / "step-6.safetensors");
  const auto got = trained_in(folder_ / "run").weights;
  ASSERT_EQ(got.size(), expected.names().size());
  for (const std::string& name : expected.names()) {
    const auto& a = got.at(name);
    const auto b = expected.numbers(name);
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << name << " " << i;
  }
}

TEST_P(EarlierVersions, RunIsEvaluatedAndDrawn) {
  const std::string run_dir = (folder_ / "run").string();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", run_dir},
        {"report", run_dir, "--output", (folder_ / "page.html").string()}}) {
    std::vector<std::string> words = {program("dtrain")};
    words.insert(words.end(), command.begin(), command.end());
    const RunResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
  }
  EXPECT_TRUE(fs::exists(folder_ / "page.html"));
}

INSTANTIATE_TEST_SUITE_P(All, EarlierVersions,
                         testing::Values(EarlierRun{"0.1.0", "plain", 1, {"--lr-schedule", "cosine"}},
                                         EarlierRun{"0.1.0", "plain", 2, {"--lr-schedule", "cosine"}},
                                         EarlierRun{"0.1.0", "sharded", 1, {}},
                                         EarlierRun{"0.1.0", "sharded", 2, {"--shard", "parameters"}}),
                         [](const auto& test) {
                           return test.param.run + "_world" + std::to_string(test.param.world);
                         });

}  // namespace
}  // namespace dtrain::test
