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
  void expect_refused(const std::vector<std::string>& more, const std::string& words) {
    expect_run_refused(training("refused", 1, more), words);
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

TEST_F(DevicesOption, WorkInsideOtherForms) {
  expect_trained(training("workers", 2));
  expect_trained(training("sharded", 2, {"--devices", "cpu:0,cpu:1", "--shard", "gradients"}));
  const auto plain = losses(folder_ / "workers"), sharded = losses(folder_ / "sharded");
  ASSERT_EQ(plain.size(), sharded.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], sharded[i], 1e-5) << i;
}

TEST_F(DevicesOption, HoldPartsOfOneNetwork) {
  expect_trained(training("plain", 1));
  expect_trained(training("placed", 1, {"--place", "conv1=cpu:0,conv2=cpu:1,fc1=cpu:1"}));
  const RunResult proposed =
      expect_trained(training("proposed", 1, {"--place", "auto", "--devices", "cpu:0,cpu:1"}));
  EXPECT_THAT(proposed.out, HasSubstr("places: conv1=cpu:0,"));
  EXPECT_THAT(proposed.out, HasSubstr(",fc2=cpu:1"));
  for (const char* name : {"placed", "proposed"}) {
    EXPECT_EQ(losses(folder_ / name), losses(folder_ / "plain")) << name;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "plain")) << name;
  }
  expect_trained(training("workers", 2));
  expect_trained(training("both", 2, {"--place", "conv1=cpu:0,fc1=cpu:1"}));
  EXPECT_EQ(final_weights(folder_ / "both"), final_weights(folder_ / "workers"));
}

TEST_F(DevicesOption, AreStagesOfAPipeline) {
  const std::vector<std::string> stages = {"--pipeline",      "2", "--devices", "cpu:0,cpu:1",
                                           "--micro-batches", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), stages.begin(), stages.end());
    return more;
  };
  expect_trained(training("plain", 1, {"--accumulate", "4", "--clip-grad-norm", "0.5", "--threads", "1"}));
  expect_trained(training("1f1b", 1, with({"--clip-grad-norm", "0.5"})));
  expect_trained(training("laced", 1, with({"--clip-grad-norm", "0.5", "--schedule", "interleaved"})));
  for (const char* name : {"1f1b", "laced"}) {
    EXPECT_EQ(losses(folder_ / name), losses(folder_ / "plain")) << name;
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "plain")) << name;
  }
  expect_trained(training("workers", 2, {"--accumulate", "4"}));
  expect_trained(training("both", 2, stages));
  EXPECT_EQ(final_weights(folder_ / "both"), final_weights(folder_ / "workers"));
}

// The scale is one for all parts, and so is the decision to skip a step.
TEST_F(DevicesOption, TakeFloat16InPartsAndStages) {
  const auto trained = [&](const std::string& name, int world, std::vector<std::string> more) {
    more.insert(more.end(), {"--precision", "fp16", "--threads", "1"});
    expect_trained(training(name, world, more));
    return final_weights(folder_ / name);
  };
  const std::vector<std::string> stages = {"--pipeline",      "2", "--devices", "cpu:0,cpu:1",
                                           "--micro-batches", "4"};
  const std::vector<std::string> places = {"--place", "conv1=cpu:0,fc1=cpu:1"};
  EXPECT_EQ(trained("placed", 1, places), trained("plain", 1, {}));
  EXPECT_EQ(trained("staged", 1, stages), trained("passes", 1, {"--accumulate", "4"}));
  EXPECT_EQ(trained("placed2", 2, places), trained("plain2", 2, {}));
  EXPECT_EQ(trained("staged2", 2, stages), trained("passes2", 2, {"--accumulate", "4"}));
}

// Each parameter's state is with one worker, on the parameter's device; the limit on the norm is of all.
// Files are those of any other form.
TEST_F(DevicesOption, ShareTheOptimizersStateOut) {
  const std::vector<std::string> stages = {"--pipeline",      "2", "--devices", "cpu:0,cpu:1",
                                           "--micro-batches", "4"},
                                 places = {"--place", "conv1=cpu:0,fc1=cpu:1"}, plain;
  const auto trained = [&](const std::string& name, int world, std::vector<std::string> more,
                           const std::vector<std::string>& of_all) {
    more.insert(more.end(), of_all.begin(), of_all.end());
    more.insert(more.end(), {"--clip-grad-norm", "0.5", "--weight-decay-on", "matrices", "--threads", "1"});
    expect_trained(training(name, world, more));
  };
  const std::vector<std::string> shard = {"--shard", "optimizer"}, lamb = {"--optimizer", "lamb"},
                                 partitioned_lamb = {"--shard", "optimizer", "--optimizer", "lamb"},
                                 bf16 = {"--compress", "bf16"},
                                 partitioned_bf16 = {"--shard", "optimizer", "--compress", "bf16"};
  const auto go_on = [](int steps) { return std::vector<std::string>{"--max-steps", std::to_string(steps)}; };
  trained("workers", 2, {"--accumulate", "4"}, go_on(6));
  for (const auto& [name, form] : {std::pair("staged", stages), std::pair("placed", places)}) {
    std::vector<std::string> passes = form;
    if (form == places) passes.insert(passes.end(), {"--accumulate", "4"});
    trained(name, 2, passes, {"--shard", "optimizer", "--max-steps", "2"});
    trained(name, 2, {"--accumulate", "4"}, go_on(3));
    trained(name, 2, passes, {"--shard", "optimizer", "--max-steps", "5"});
    trained(name, 2, passes, go_on(6));
    EXPECT_EQ(final_weights(folder_ / name), final_weights(folder_ / "workers")) << name;
  }
  for (const auto& [name, with, without] :
       {std::tuple("lamb", partitioned_lamb, lamb), std::tuple("bf16", partitioned_bf16, bf16)}) {
    trained(name, 2, plain, without);
    const std::string partitioned = std::string("partitioned-") + name;
    trained(partitioned, 2, places, with);
    EXPECT_EQ(losses(folder_ / partitioned), losses(folder_ / name)) << name;
  }
}

TEST_F(DevicesOption, SayWhatCannotBePlaced) {
  expect_refused({"--place", "features=cpu:0,fc1=cpu:1"},
                 "expected a module of the network (conv1, conv2, fc1, fc2), got 'features'");
  expect_refused({"--place", "conv1=cpu:0,fc1=gpu:1"},
                 "expected a CPU or a GPU, as in cpu:0 and cuda:0, for fc1, got gpu:1");
  expect_refused({"--place", "conv1=cpu:0,fc1=cuda:1"},
                 "expected devices of one kind, as cpu:0, for fc1, got cuda:1");
  expect_refused({"--place", "fc1=cpu:2", "--devices", "cpu:0,cpu:1"},
                 "expected one of the devices of --devices (cpu:0,cpu:1) for fc1, got cpu:2");
  expect_refused({"--place", "auto"}, "--devices with auto");
  expect_refused({"--place", "auto", "--devices", "cpu:0,cpu:1,cpu:2,cpu:3,cpu:4"},
                 "each of 5 stages, got 4 parts");
  for (const char* what : {"gradients", "parameters"}) {
    expect_refused({"--place", "fc1=cpu:1", "--shard", what},
                   "expected optimizer or none with --place, whose parameters are whole");
    expect_refused({"--pipeline", "2", "--devices", "cpu:0,cpu:1", "--micro-batches", "4", "--shard", what},
                   "expected optimizer or none with --pipeline over --devices");
  }
  expect_refused({"--place", "fc1=cpu:1", "--shard", "optimizer", "--shard-group", "1"}, "expected job with");
  expect_refused({"--pipeline", "3", "--devices", "cpu:0,cpu:1", "--micro-batches", "4"},
                 "expected a stage for each of 2 devices, got 3");
  expect_refused({"--pipeline", "2", "--devices", "cpu:0,cpu:1", "--place", "fc1=cpu:1"},
                 "which places its stages");
}

TEST_F(DevicesOption, SayWhatTheyDoNotGoWith) {
  expect_refused({"--devices", "cpu:0"}, "expected two CPUs or more");
  expect_refused({"--devices", "cpu:0,cpu:0"}, "each once");
  expect_refused({"--devices", "cpu:0,gpu:1"}, "expected two CPUs or more");
  expect_refused({"--devices", "cpu:0,cpu:1", "--global-batch-size", "1"},
                 "expected at least one sample of a pass for each of 2 devices, got 1");
  expect_refused({"--devices", "cpu:0,cpu:1", "--virtual-workers", "2"},
                 "expected nothing with --virtual-workers, whose parts a worker computes one after");
  expect_refused({"--update-on", "host"}, "--update-on");
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
    const auto end = result.out.find(" sec/epoch on [" + devices + "]");
    EXPECT_NE(end, std::string::npos) << result.out;
    return std::stod(result.out.substr(result.out.rfind("test acc: ", end) + 10));
  };
  EXPECT_NEAR(accuracy_on("cpu:0"), accuracy_on("cpu:0, cpu:1"), 0.02) << result.out;
  EXPECT_GT(accuracy_on("cpu:0"), 0.5) << result.out;
}

}  // namespace
}  // namespace dtrain::test
