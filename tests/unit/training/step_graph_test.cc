// Steps that are recorded and replayed, and reports that are read late, give the very numbers of steps that
// run as they are: on a device that records the CPU's kernels.
#include <set>

#include "tests/support/json.h"
#include "training/engine/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "collectives/factory.h"
#include "models/tasks/classification.h"
#include "parallel/forms.h"
#include "runtime/data/images/files/growing_source.h"
#include "tests/support/tape_device.h"
#include "tests/support/temp_dir.h"
#include "training/loop/trainer.h"

namespace dtrain::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  ExitCode code = ExitCode::failure;
  std::vector<std::string> lines;  ///< of metrics.jsonl, without times and memory
  std::string weights;             ///< bytes of the last checkpoint
};

/// Metrics without what depends on the clock and on the process: memory.
std::vector<std::string> lines_of(const std::filesystem::path& run) {
  static const std::set<std::string> kOfTheMachine = {"time",
                                                      "seconds",
                                                      "samples_per_second",
                                                      "allocated_bytes",
                                                      "peak_allocated_bytes",
                                                      "resident_bytes",
                                                      "peak_resident_bytes"};
  std::vector<std::string> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    std::string kept;
    for (const auto& [name, value] : test::Json::parse(line).items()) {
      if (!kOfTheMachine.contains(name)) kept += name + "=" + value.dump() + " ";
    }
    lines.push_back(kept);
  }
  return lines;
}

/// The value of --model, taken out of `arguments`; "lenet" without.
std::string take_model(std::vector<std::string>& arguments) {
  const auto found = std::find(arguments.begin(), arguments.end(), "--model");
  if (found == arguments.end()) return "lenet";
  const std::string model = *std::next(found);
  arguments.erase(found, found + 2);
  return model;
}

/// Classification of synthetic images whose sides are 4 pixels in the first epoch, 6 in evaluation and 8
/// later.
class GrowingTask final : public Task {
 public:
  explicit GrowingTask(const std::string& model) : inner_(model) {}
  std::string name() const override { return inner_.name(); }
  Splits open(const DataRequest& request) const override {
    const auto train = [&](const std::string& name) {
      return open_source(name, Split::train, {.data_dir = "", .log = request.log});
    };
    const auto at = [small = train("synthetic:1x4x4,10,38"), large = train("synthetic:1x8x8,10,38")](
                        std::int64_t epoch) { return epoch == 0 ? small : large; };
    Splits splits = inner_.open(request);
    splits.train = std::make_shared<const GrowingSource>(splits.train, at);
    return splits;
  }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return inner_.build(fields, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return inner_.loss(outputs, batch);
  }

 private:
  Classification inner_;
};

class StepGraphRun : public testing::Test {
 protected:
  Outcome train(const std::shared_ptr<Device>& device, std::vector<std::string> arguments) {
    return train<Classification>(device, std::move(arguments));
  }
  template <class T>
  Outcome train(const std::shared_ptr<Device>& device, std::vector<std::string> arguments) {
    const std::filesystem::path run = folder_.path() / std::to_string(++runs_);
    for (const char* argument : {"--dataset", "synthetic:1x6x6,10,38", "--global-batch-size", "8", "--seed",
                                 "3", "--log-every", "1", "--lr", "0.05"})
      arguments.emplace_back(argument);
    arguments.insert(arguments.end(), {"--run-dir", run.string()});
    const Environment environment;
    const std::string model = take_model(arguments);
    const Options options = resolve_options("dtrain train", train_options(), arguments, environment);
    const TrainConfig config = make_train_config(options, model, 1);
    const T task(model);
    const StopSignal stop_signal;
    WorkerLog log("test");
    Tracer tracer(std::nullopt, 0, log);
    const auto communicator = make_communicator(Backend::self, {}, log);
    StepClock clock;
    Outcome outcome;
    {
      const auto whole = make_data_parallel(
          {*communicator, device, config.collective_timeout, {&clock, nullptr}}, {}, config.sync_batch_norm);
      Strategy& strategy = *whole;
      Trainer trainer(config, {task, strategy, *communicator, device, options, environment, stop_signal, log,
                               tracer, clock});
      try {
        outcome.code = trainer.run();
      } catch (...) {
        outcome.lines = lines_of(run);
        last_lines_ = outcome.lines;
        throw;
      }
    }
    outcome.lines = lines_of(run);
    for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints")) {
      if (std::filesystem::exists(entry.path() / "model.safetensors"))
        outcome.weights += read_file(entry.path() / "model.safetensors");
    }
    return outcome;
  }

  TempDir folder_;
  int runs_ = 0;
  std::vector<std::string> last_lines_;
};

struct Setting {
  const char* name;
  std::vector<std::string> arguments;
  bool as_on_cpu = true;  ///< false: GPUs write zeros where CPUs add up what is nothing but rounding
};

class StepGraphSettings : public StepGraphRun, public testing::WithParamInterface<Setting> {};

// 38 samples in batches of 8: each epoch ends with a step of another shape, which runs as it is.
TEST_P(StepGraphSettings, SameNumbersRecordedAndAsTheyCome) {
  std::vector<std::string> arguments = GetParam().arguments;
  arguments.insert(arguments.end(), {"--epochs", "2"});
  const Outcome expected = train(make_device("cpu"), arguments);
  arguments.insert(arguments.end(), {"--cuda-graph", "off"});
  const auto plain = std::make_shared<TapeDevice>(), recording = std::make_shared<TapeDevice>();
  const Outcome late = train(plain, arguments);
  arguments.back() = "on";
  const Outcome replayed = train(recording, arguments);
  EXPECT_EQ(plain->graphs, 0);
  EXPECT_EQ(recording->graphs, 1);
  EXPECT_EQ(recording->launches, 2 * 4 - 3);       // full steps, without those that warm up
  ASSERT_EQ(expected.lines.size(), 2u * (5 + 2));  // steps, the epoch, its evaluation
  EXPECT_EQ(replayed.lines, late.lines);
  EXPECT_FALSE(late.weights.empty());
  EXPECT_TRUE(replayed.weights == late.weights);
  if (!GetParam().as_on_cpu) return;
  EXPECT_EQ(late.lines, expected.lines);
  EXPECT_TRUE(late.weights == expected.weights);
}

INSTANTIATE_TEST_SUITE_P(
    , StepGraphSettings,
    testing::Values(
        Setting{"mlp", {"--model", "mlp"}},
        Setting{"momentum", {"--model", "mlp", "--momentum", "0.9", "--nesterov"}},
        Setting{"adamw_cosine",
                {"--model", "mlp", "--optimizer", "adamw", "--lr-schedule", "cosine", "--warmup-steps", "4"}},
        Setting{"fp16", {"--model", "mlp", "--precision", "fp16", "--momentum", "0.9"}},
        Setting{"fp16_adamw", {"--model", "mlp", "--precision", "fp16", "--optimizer", "adamw"}},
        Setting{"bf16", {"--model", "mlp", "--precision", "bf16", "--optimizer", "adamw"}},
        Setting{"accumulate", {"--model", "mlp", "--accumulate", "4", "--momentum", "0.9"}},
        Setting{
            "batch_norm", {"--model", "resnet18", "--momentum", "0.9", "--checkpoint-every", "0"}, false}),
    [](const auto& setting) { return std::string(setting.param.name); });

// Two epochs of four full steps and a smaller one; of each size three steps warm up.
TEST_F(StepGraphRun, StepsOfAnotherSizeAreRecordedAnew) {
  std::vector<std::string> arguments = {"--model",      "resnet18", "--momentum",         "0.9",
                                        "--epochs",     "2",        "--checkpoint-every", "0",
                                        "--cuda-graph", "off"};
  const auto plain = std::make_shared<TapeDevice>(), recording = std::make_shared<TapeDevice>();
  const Outcome late = train<GrowingTask>(plain, arguments);
  arguments.back() = "on";
  const Outcome replayed = train<GrowingTask>(recording, arguments);
  EXPECT_EQ(plain->graphs, 0);
  EXPECT_EQ(recording->graphs, 2);
  EXPECT_EQ(recording->launches, 2 * (4 - 3));
  EXPECT_EQ(replayed.lines, late.lines);
  EXPECT_FALSE(late.weights.empty());
  EXPECT_TRUE(replayed.weights == late.weights);
}

TEST_F(StepGraphRun, MetricsAreCompleteWhenTheLossIsNotFinite) {
  const std::vector<std::string> arguments = {"--model", "mlp", "--momentum", "0.9", "--warmup-steps", "1"};
  std::vector<std::string> wild = arguments;
  wild.insert(wild.end(), {"--epochs", "4"});
  // The rate is so large that the loss overflows after some steps.
  const auto run = [&](const std::shared_ptr<Device>& device) -> std::string {
    std::vector<std::string> all = wild;
    all.insert(all.end(), {"--base-batch-size", "1", "--scale-lr", "linear", "--weight-decay", "1e10"});
    try {
      train(device, all);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string on_cpu = run(make_device("cpu"));
  const std::vector<std::string> expected = last_lines_;
  EXPECT_THAT(on_cpu, AllOf(HasSubstr("the loss is"), HasSubstr("nothing was updated")));
  const std::string on_tape = run(std::make_shared<TapeDevice>());
  EXPECT_THAT(on_tape, AllOf(HasSubstr("the loss is"), HasSubstr("starts from the beginning")));
  EXPECT_EQ(on_tape.substr(0, on_tape.find(':')), on_cpu.substr(0, on_cpu.find(':')));  // the same step
  EXPECT_EQ(last_lines_, expected);
}

TEST_F(StepGraphRun, RefusedWhereThereAreNoGraphs) {
  try {
    train(make_device("cpu"), {"--cuda-graph", "on"});
    FAIL() << "the CPU has no graphs";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("--cuda-graph on"), HasSubstr("got cpu"), HasSubstr("--device cuda")));
  }
}

TEST(TapeDevice, RefusesToWaitWhileRecording) {
  const auto device = std::make_shared<TapeDevice>();
  const Tensor one = Tensor::ones({1}, device);
  EXPECT_THROW(device->record([&] { static_cast<void>(one.item()); }), DeviceError);
  EXPECT_EQ(one.item(), 1.0);
}

}  // namespace
}  // namespace dtrain::test
