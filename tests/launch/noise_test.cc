// Random numbers of a network's forward, by the real program; that they are the same in every form of
// parallelism is in the table of forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

// What a forward draws from a stream is neither saved nor the sample's own.
TEST(PlainGenerator, IsRefusedInsideAStep) {
  const TempDir folder;
  TrainingRun run{.world = 2,
                  .launcher_arguments = {},
                  .arguments = {"--max-steps", "2", "--plain-generator"},
                  .run_dir = folder / "run",
                  .options = limited_to(std::chrono::seconds(120))};
  const char* const program = std::getenv("DTRAIN_BRANCHES");
  run.program = {program == nullptr ? "./dtrain_branches" : program};
  const RunResult result = train(run);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("Use Noise"));
}

}  // namespace
}  // namespace dtrain::test
