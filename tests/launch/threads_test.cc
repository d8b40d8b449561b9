// The threads of a worker: how they wait, and that their number changes no bit.
#include <cstdlib>
#include <fstream>

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

TEST_F(ThreadsOption, AnyNumberOfThreadsGivesTheSameWeights) {
  const std::vector<std::string> images = {"--dataset=synthetic:1x28x28,10,128", "--batch-size=40"};
  std::ofstream(folder_ / "words.txt") << learnable_text();
  const std::vector<std::string> text = {"--dataset=text:words.txt,context=128",
                                         "--data-dir=" + folder_.path().string(),
                                         "--width=64",
                                         "--heads=4",
                                         "--batch-size=16",
                                         "--optimizer=adamw"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> networks = {
      {"lenet", images},
      {"mlp", images},
      {"resnet18", {"--dataset=synthetic:3x16x16,10,128", "--batch-size=8"}},
      {"transformer", text}};
  for (const auto& [model, data] : networks) {
    for (const std::string precision : {"fp32", "bf16"}) {
      if (precision == "bf16" && (model == "lenet" || model == "mlp")) continue;  // no kernel of their own
      const auto training = [&](int threads) {
        return run_named(model + precision + std::to_string(threads), 1, data,
                         {"--model=" + model, "--precision=" + precision, "--log-every=1", "--max-steps=3",
                          "--eval-every=0", "--threads=" + std::to_string(threads)});
      };
      expect_trained(training(1));
      for (const int threads : {2, 3, 4, 8}) {
        const TrainingRun several = training(threads);
        expect_trained(several);
        EXPECT_EQ(losses(several.run_dir), losses(training(1).run_dir))
            << model << ", " << threads << " threads";
        EXPECT_EQ(final_weights(several.run_dir), final_weights(training(1).run_dir))
            << model << ", " << precision << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::test
