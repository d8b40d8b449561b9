// The threads of a worker: how they wait, and that their number changes no bit.
#include <cstdlib>

#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ThreadsOption : public OptionTest {
 protected:
  ThreadsOption() {  // as a user starts it
    ::unsetenv("OMP_WAIT_POLICY");
    ::unsetenv("GOMP_SPINCOUNT");
  }
  /// What OpenMP says about itself while the program is loaded.
  std::string told(const std::map<std::string, std::string>& environment) {
    TrainingRun run = run_named("told", 1, {"--print-config"}, {});
    run.options.environment = environment;
    run.options.environment["OMP_DISPLAY_ENV"] = "true";
    const RunResult result = train(run);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  }
};

TEST_F(ThreadsOption, ThreadsThatWaitSleep) {
  if (told({{"OMP_WAIT_POLICY", "active"}}).find("OMP_WAIT_POLICY") == std::string::npos)
    GTEST_SKIP() << "the program was built without OpenMP";
  EXPECT_THAT(told({}), HasSubstr("OMP_WAIT_POLICY = 'PASSIVE'"));
  EXPECT_THAT(told({{"OMP_WAIT_POLICY", "active"}}), Not(HasSubstr("PASSIVE"))) << "the user has said so";
}

}  // namespace
}  // namespace dtrain::test
