// --devices through the programs: the weights of as many workers, updated on the first device or on the
// host; and the lesson that does it by hand.
#include <cstdlib>

#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class DevicesOption : public OptionTest {
 protected:
  TrainingRun training(const std::string& name, int world, const std::vector<std::string>& more = {}) {
    return run_named(name, world,
                     {"--model=lenet", "--dataset=synthetic:1x28x28,10,128", "--global-batch-size=32",
                      "--eval-every=1", "--optimizer=adamw", "--lr=0.002", "--max-steps=5"},
                     more);
  }
};

TEST_F(DevicesOption, GiveTheWeightsOfAsManyWorkers) {
  expect_trained(training("workers", 2));
  const RunResult result = expect_trained(training("devices", 1, {"--devices", "cpu:0,cpu:1", "--profile"}));
  EXPECT_EQ(final_weights(folder_ / "devices"), final_weights(folder_ / "workers"));
  EXPECT_DOUBLE_EQ(last_accuracy(folder_ / "devices"), last_accuracy(folder_ / "workers"));
  EXPECT_THAT(result.out, HasSubstr("cpu:1 held at most"));
  EXPECT_THAT(result.out, HasSubstr("between devices in a step: 0.49 MiB of parameters, 0.49 of gradients"));

  expect_trained(training("host", 1, {"--devices", "cpu:0,cpu:1", "--update-on", "host"}));
  EXPECT_EQ(final_weights(folder_ / "host"), final_weights(folder_ / "workers"));
}

// Where there is no GPU, or nothing that can use it.
TEST_F(DevicesOption, GpusThatAreNamedAndNotUsedAreSaid) {
  TrainingRun named = training("named", 2);
  named.options.environment = {{"DTRAIN_CUDA_MODULE", "/no/such/module.so"}, {"CUDA_VISIBLE_DEVICES", "0,1"}};
  const RunResult said = expect_trained(named);
  const std::string all = said.out + said.err,
                    words = "device cpu, though CUDA_VISIBLE_DEVICES=0,1 names GPUs: ";
  const std::size_t at = all.find(words);
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_EQ(all.find(words, at + 1), std::string::npos) << "once";
  EXPECT_THAT(all.substr(at, all.find('\n', at) - at), HasSubstr("/no/such/module.so"));
  for (TrainingRun meant : {training("meant", 2, {"--device=cpu"}), training("hidden", 2)}) {
    const bool hidden = meant.run_dir.filename() == "hidden";
    meant.options.environment = {{"DTRAIN_CUDA_MODULE", "/no/such/module.so"},
                                 {"CUDA_VISIBLE_DEVICES", hidden ? "" : "0,1"}};
    const RunResult result = expect_trained(meant);
    EXPECT_THAT(result.out + result.err, testing::Not(HasSubstr("device cpu, though")));
  }
}

TEST_F(DevicesOption, EmulatedGpusThatAreNotThereAreRefused) {
  for (const bool by_option : {true, false}) {
    TrainingRun run = training("emulated", 2);
    run.options.environment = {{"DTRAIN_CUDA_MODULE", "/no/such/module.so"}};
    if (by_option)
      run.launcher_arguments = {"--emulated-gpus=2"};
    else
      run.options.environment["DTRAIN_EMULATED_GPUS"] = "2";
    expect_run_refused(run, "/no/such/module.so");
  }
}

TEST_F(DevicesOption, HoldPartsWhereverThatIsProposed) {
  expect_trained(training("plain", 1));
  const RunResult proposed =
      expect_trained(training("proposed", 1, {"--place", "auto", "--devices", "cpu:0,cpu:1"}));
  EXPECT_THAT(proposed.out, HasSubstr("places: conv1=cpu:0,"));
  EXPECT_THAT(proposed.out, HasSubstr(",fc2=cpu:1"));
  EXPECT_EQ(final_weights(folder_ / "proposed"), final_weights(folder_ / "plain"));
}

TEST_F(DevicesOption, TheLessonGivesTheSameAccuracyOnOneAndOnTwo) {
  write_small_dataset(folder_ / "data", 1000, 200);
  const char* examples = std::getenv("DTRAIN_EXAMPLES");
  RunOptions options = limited_to(std::chrono::seconds(100));
  options.environment["OMP_NUM_THREADS"] = "1";  // threads that wait for cores wait long on a busy machine
  const RunResult result =
      run({std::string(examples == nullptr ? "." : examples) + "/lesson_multi_gpu", "--epochs", "2",
           "--batch-size", "32", "--lr", "0.2", "--scale", "0.1", "--data-dir", (folder_ / "data").string()},
          options);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto accuracy_on = [&](const std::string& devices) {
    const auto end = result.out.find(" sec/epoch on " + devices + "\n");
    EXPECT_NE(end, std::string::npos) << result.out;
    return std::stod(result.out.substr(result.out.rfind("test acc: ", end) + 10));
  };
  EXPECT_NEAR(accuracy_on("1 device"), accuracy_on("2 devices"), 0.02) << result.out;
  EXPECT_GT(accuracy_on("1 device"), 0.5) << result.out;
}

}  // namespace
}  // namespace dtrain::test
