// Numbers that are not finite: whatever way the work is divided, all workers end in the same step, nothing of
// it is saved, the cause is named, and the next start finds a checkpoint that can be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/launch/option_test.h"
#include "tests/support/json.h"

namespace dtrain::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Form {
  const char* name;
  int world;
  std::vector<std::string> arguments;
  int servers = 0;
  double tolerance = 1e-4;  ///< of losses
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

/// Steps of the checkpoints in a run's folder that still have their name, in order.
std::vector<std::int64_t> checkpoints(const std::filesystem::path& run) {
  NullLog log;
  std::vector<std::int64_t> steps;
  for (const auto& entry : CheckpointStore(run / "checkpoints", 0, log).list()) steps.push_back(entry.step);
  return steps;
}

/// Whether all numbers of all its checkpoints are finite.
bool are_finite(const std::filesystem::path& run) {
  NullLog log;
  for (const auto& entry : CheckpointStore(run / "checkpoints", 0, log).list()) {
    const Checkpoint checkpoint = load_checkpoint(entry.path);
    for (const TensorFiles* files : {&checkpoint.model, &checkpoint.optimizer}) {
      for (const SavedTensor& saved : files->tensors()) {
        if (saved.dtype != DType::f32) continue;
        std::vector<float> values(static_cast<std::size_t>(saved.shape.product()));
        files->read(saved.name, {values.data(), DType::f32, saved.shape, contiguous_strides(saved.shape)});
        if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return false;
      }
    }
  }
  return true;
}

std::string ending(const std::filesystem::path& run) {
  const Json summary = Json::read(run / "summary.json");
  return summary.contains("status") ? summary["status"].text() : "";
}

/// The N of the first "step N (" in `text`; 0 where there is none.
std::int64_t step_in(const std::string& text) {
  const std::size_t at = text.find("step ");
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + 5);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class NotFinite : public OptionTest {
 protected:
  TrainingRun numbers(const std::string& name, int world, const std::vector<std::string>& more) const {
    TrainingRun run = run_named(name, world,
                                {"--global-batch-size=8", "--epochs=2", "--lr=0.01", "--momentum=0.9",
                                 "--seed=3", "--log-every=1", "--checkpoint-every=1", "--keep-checkpoints=0"},
                                more);
    run.program = {DTRAIN_NUMBERS};
    return run;
  }
  TrainingRun linear(const std::string& name, int world, const std::vector<std::string>& more) {
    write_file(folder_ / "table.csv",
               "a,b,y\n1,2,3\n2,1,4\n3,5,2\n4,4,1\n5,2,8\n6,1,9\n7,3,5\n8,8,2\n9,1,4\n");
    return run_named(name, world,
                     {"--model=linear", "--task=regression", "--dataset=csv:table.csv,target=y,split=0.8",
                      "--data-dir=" + folder_.path().string(), "--global-batch-size=4", "--log-every=1"},
                     more);
  }
};

class NotFiniteForms : public NotFinite, public testing::WithParamInterface<Form> {
 protected:
  TrainingRun training(const std::string& name, std::vector<std::string> more) const {
    const Form& form = GetParam();
    more.insert(more.end(), form.arguments.begin(), form.arguments.end());
    TrainingRun run = numbers(name, form.world, more);
    if (form.servers > 0) {
      run.start = Start::launcher;
      run.launcher_arguments = {"--servers=" + std::to_string(form.servers)};
    }
    return run;
  }
};

// One rank, one stage, one place alone has a gradient that is not finite, and a loss that is.
TEST_P(NotFiniteForms, GradientsMoveNoParameter) {
  const TrainingRun run = training("run", {"--break=gradient"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("gradients are not finite"), HasSubstr("their update was not saved")));
  EXPECT_EQ(ending(run.run_dir), "diverged");
  EXPECT_TRUE(std::filesystem::exists(run.run_dir / "report.html"));
  EXPECT_TRUE(are_finite(run.run_dir));
  const std::int64_t step = step_in(ended.err.substr(ended.err.find("gradients are not finite") - 60));
  // The same step wherever the work is done: the one in which sample 13 comes.
  const TrainingRun alone = numbers("alone", 1, {"--break=gradient"});
  const RunResult expected = train(alone);
  EXPECT_EQ(step, step_in(expected.err.substr(expected.err.find("gradients are not finite") - 60)));
  for (const std::int64_t saved : checkpoints(run.run_dir)) EXPECT_LT(saved, step - 1);
}

// Gradients and losses are finite. Servers update elsewhere: there the loss after it tells.
TEST_P(NotFiniteForms, AnUpdateThatOverflowsEndsTheRun) {
  const TrainingRun run =
      training("run", {"--break=update", "--lr=1e30", "--checkpoint-every=0", "--eval-every=0"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.err, GetParam().servers > 0 ? HasSubstr("the loss is")
                                                : HasSubstr("step 1: gradients and loss are finite, but"));
  EXPECT_THAT(ended.err, HasSubstr("Lower --lr"));
  EXPECT_EQ(ending(run.run_dir), "diverged");
  EXPECT_TRUE(checkpoints(run.run_dir).empty());
}

TEST_P(NotFiniteForms, APassWithoutUnitsAddsNothing) {
  const TrainingRun run = training("run", {"--units=some"}), alone = numbers("alone", 1, {"--units=some"});
  expect_trained(alone);
  expect_trained(run);
  const std::vector<double> expected = losses(alone.run_dir), found = losses(run.run_dir);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], GetParam().tolerance) << i;
}

const Form kForms[] = {
    {"data_parallel", 4, {}},
    {"accumulated", 2, {"--accumulate=4"}},
    {"virtual_workers", 2, {"--virtual-workers=8"}},
    {"threads", 1, {"--thread-workers=4"}},
    {"devices", 1, {"--devices=cpu:0,cpu:1", "--accumulate=4"}},
    {"optimizer_shards", 2, {"--shard=optimizer", "--accumulate=4"}},
    {"gradient_shards", 2, {"--shard=gradients", "--accumulate=4"}},
    {"parameter_shards", 4, {"--shard=parameters"}},
    {"pipeline", 2, {"--pipeline=2", "--micro-batches=8"}},
    {"pipeline_of_devices", 1, {"--pipeline=2", "--devices=cpu:0,cpu:1", "--micro-batches=8"}},
    {"mesh", 4, {"--mesh=dp=2,pp=2", "--micro-batches=4", "--shard=parameters"}},
    {"powersgd", 2, {"--compress=powersgd:4", "--accumulate=4"}, 0, 0.1},
    {"server", 2, {"--accumulate=4"}, 1},
};

INSTANTIATE_TEST_SUITE_P(, NotFiniteForms, testing::ValuesIn(kForms),
                         [](const auto& made) { return std::string(made.param.name); });

// Parameters differ between averages: so does what one process has, but not the end.
TEST_F(NotFinite, GradientsOfOneRankEndLocalSgdOnAll) {
  const TrainingRun run = numbers("run", 2, {"--break=gradient", "--sync-every=4"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("gradients are not finite"), Not(HasSubstr("peer"))));
  EXPECT_TRUE(are_finite(run.run_dir));
}

TEST_F(NotFinite, GradientsAreNotPushedToAnAsynchronousServer) {
  TrainingRun run = numbers("run", 2, {"--break=gradient", "--update=async"});
  run.launcher_arguments = {"--servers=1"};
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("gradients are not finite"));
  EXPECT_TRUE(are_finite(run.run_dir));
}

// Weights that are finite and give a loss that is not: what was saved of them is of no use.
TEST_F(NotFinite, ACheckpointThatLeadsThereIsSetAside) {
  for (const int world : {1, 2}) {
    SCOPED_TRACE(world);
    const std::string name = "run" + std::to_string(world);
    const std::vector<std::string> wild = {"--checkpoint-every=1", "--max-steps=6"};
    expect_trained(linear(name, world, {"--checkpoint-every=1", "--max-steps=2", "--lr=0.001"}));
    TrainingRun bad = linear(name, world, wild);
    bad.arguments.push_back("--lr=1e30");
    const RunResult ended = train(bad);
    EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("step 4"), HasSubstr("nothing was updated"),
                                 HasSubstr("Lower --lr"), HasSubstr("resumes from step 2")));
    EXPECT_EQ(checkpoints(bad.run_dir), (std::vector<std::int64_t>{1, 2}));
    EXPECT_TRUE(std::filesystem::exists(bad.run_dir / "checkpoints" / "step-00000003.refused-diverged"));
    EXPECT_EQ(ending(bad.run_dir), "diverged");
    TrainingRun rest = linear(name, world, wild);
    rest.arguments.push_back("--lr=0.001");
    expect_trained(rest);
    EXPECT_EQ(step_lines(rest.run_dir).back().step, 6);
  }
}

/// Writes the newest checkpoint of `run` again, with an infinite first value in its first tensor.
void break_newest(const std::filesystem::path& run) {
  NullLog log;
  CheckpointStore store(run / "checkpoints", 0, log);
  const Checkpoint newest = *store.latest();
  std::vector<std::vector<float>> memory;
  Snapshot snapshot{newest.state, {}, {}};
  for (const SavedTensor& saved : newest.model.tensors()) {
    auto& values = memory.emplace_back(static_cast<std::size_t>(saved.shape.product()));
    const View view{values.data(), DType::f32, saved.shape, contiguous_strides(saved.shape)};
    newest.model.read(saved.name, view);
    snapshot.model.push_back({saved.name, view});
  }
  memory.front().front() = std::numeric_limits<float>::infinity();
  store.save(snapshot);
}

// What a build wrote that did not look.
TEST_F(NotFinite, ACheckpointThatHasThemIsPassedOver) {
  const std::vector<std::string> calm = {"--checkpoint-every=1", "--lr=0.001"};
  for (const int world : {1, 2}) {
    const std::string name = "run" + std::to_string(world);
    TrainingRun run = linear(name, world, calm);
    run.arguments.push_back("--max-steps=3");
    expect_trained(run);
    break_newest(run.run_dir);
    TrainingRun by_path = linear(name + "path", world, calm);
    by_path.arguments.push_back("--resume=" + (run.run_dir / "checkpoints" / "step-00000003").string());
    const RunResult refused = train(by_path);
    EXPECT_EQ(refused.exit_code, 5);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("expected a checkpoint whose numbers are finite"),
                                   HasSubstr("weight is not finite")));
    run.arguments.back() = "--max-steps=5";
    const RunResult result = expect_trained(run);
    EXPECT_THAT(result.err, AllOf(HasSubstr("weight is not finite"), HasSubstr("trying the one before")));
    EXPECT_EQ(checkpoints(run.run_dir).back(), 5);
    EXPECT_TRUE(are_finite(run.run_dir));
    EXPECT_TRUE(std::filesystem::exists(run.run_dir / "checkpoints" / "step-00000003.refused-diverged"));
  }
}

TEST_F(NotFinite, WithoutACheckpointThereIsNoTalkOfOne) {
  const TrainingRun run = linear("run", 1, {"--lr=1e30", "--max-steps=3", "--checkpoint-every=0"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("starts from the beginning"), Not(HasSubstr("is good"))));
  EXPECT_TRUE(checkpoints(run.run_dir).empty());
}

TEST_F(NotFinite, AnEvaluationEndsTheRunBeforeItIsSaved) {
  const TrainingRun run = linear("run", 1, {"--lr=1e30", "--max-steps=1"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the test loss is"), HasSubstr("Lower --lr"), HasSubstr("scale=standard")));
  EXPECT_TRUE(checkpoints(run.run_dir).empty());
  EXPECT_EQ(ending(run.run_dir), "diverged");
}

// Data are to blame: the rate is not, and the checkpoints are good.
TEST_F(NotFinite, ASampleIsNamed) {
  for (const int world : {1, 4}) {
    const TrainingRun run = numbers("data" + std::to_string(world), world, {"--break=data"});
    const RunResult ended = train(run);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("sample 13 of numbers has x = nan"), Not(HasSubstr("--lr"))));
    // All that were written are good.
    const auto saved = checkpoints(run.run_dir);
    EXPECT_THAT(ended.err, saved.empty() ? HasSubstr("starts from the beginning")
                                         : HasSubstr("resumes from step " + std::to_string(saved.back())));
    EXPECT_FALSE(std::filesystem::exists(run.run_dir / "checkpoints" / "step-00000001.refused-diverged"));
  }
  const RunResult result = expect_trained(numbers("test", 2, {"--break=test"}));
  EXPECT_EQ(count_of(result.err, "sample 13 of numbers has x = nan"), 2U) << "once an epoch\n" << result.err;
}

// float16's largest number is 65504: no loss scale brings back what the network itself cannot hold.
TEST_F(NotFinite, ALossEndsFloat16InThatStep) {
  const TrainingRun run = numbers("run", 1, {"--precision=fp16", "--lr=1e4", "--max-steps=8"});
  const RunResult ended = train(run);
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the loss is"), HasSubstr("--precision bf16")));
  EXPECT_EQ(ending(run.run_dir), "diverged");
  EXPECT_TRUE(are_finite(run.run_dir));
}

// A gradient that no scale makes finite.
TEST_F(NotFinite, LossScalingEndsAtItsFloor) {
  const std::vector<std::string> one_batch = {"--precision=fp16", "--break=gradient",
                                              "--global-batch-size=64", "--epochs=60"};
  for (const int world : {1, 2}) {
    const TrainingRun run = numbers("run" + std::to_string(world), world, one_batch);
    const RunResult ended = train(run);
    EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
    EXPECT_THAT(ended.err,
                AllOf(HasSubstr("at the smallest loss scale"), HasSubstr("the loss scale fell to")));
    // Once; where rank 0 fails first, the failure report repeats its last lines.
    const std::string told = ended.err.substr(0, ended.err.find("its last lines on stderr:"));
    EXPECT_EQ(count_of(told, "the loss scale fell to"), 1U) << ended.err;
  }
  const RunResult few = train(
      numbers("few", 1, {"--precision=fp16", "--break=gradient", "--global-batch-size=64", "--epochs=4"}));
  EXPECT_EQ(few.exit_code, 0);
  EXPECT_THAT(few.err, HasSubstr("all 4 steps were skipped"));
}

}  // namespace
}  // namespace dtrain::test
