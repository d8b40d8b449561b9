// What the tests share of the options by which workers divide their work.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {

class OptionTest : public testing::Test {
 protected:
  /// A run in the test's folder, under a launcher or, with one worker, alone; `more` comes behind
  /// `arguments`.
  TrainingRun run_named(const std::string& name, int world, std::vector<std::string> arguments,
                        const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {.start = world == 1 ? Start::alone : Start::launcher,
            .world = world,
            .launcher_arguments = {},
            .arguments = arguments,
            .run_dir = folder_ / name,
            .options = limited_to(std::chrono::seconds(100))};
  }
  static RunResult expect_trained(const TrainingRun& run) {
    RunResult result = train(run);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }
  /// Refused with these words before anything is trained.
  static void expect_run_refused(const TrainingRun& run, const std::string& words) {
    const RunResult result = train(run);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, testing::HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(run.run_dir / "checkpoints")) << "nothing was started";
  }

  TempDir folder_;
};

}  // namespace dtrain::test
