// --tensor and --mesh through the programs: a transformer split among workers learns as the whole one does,
// is saved as the whole one, and goes on at any width.
#include <algorithm>
#include <tuple>

#include "tests/launch/option_test.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;

class TensorOption : public OptionTest {
 protected:
  void SetUp() override { write_file(folder_ / "book.txt", learnable_text()); }

  TrainingRun training(const std::string& name, int world, int steps,
                       const std::vector<std::string>& more = {}) {
    return run_named(
        name, world,
        {"--model=transformer", "--dataset=text:book.txt,context=16", "--data-dir=" + folder_.path().string(),
         "--width=32", "--global-batch-size=16", "--log-every=1", "--optimizer=adamw", "--lr=0.003",
         "--clip-grad-norm=0.5", "--max-steps=" + std::to_string(steps)},
        more);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& words, int world = 1) {
    expect_run_refused(training("refused", world, 1, more), words);
  }
  void expect_alike(const std::string& name, const std::string& expected) {
    const auto got = losses(folder_ / name), wanted = losses(folder_ / expected);
    ASSERT_EQ(got.size(), wanted.size()) << name;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5) << name << " " << i;
  }
};

// 281 windows to train on: before step 18 all steps have 16 of them, whatever the number of workers.
TEST_F(TensorOption, LearnsWhatOneProcessLearns) {
  expect_trained(training("one", 1, 16));
  const auto alone = losses(folder_ / "one");
  EXPECT_LT(alone.back(), 0.8 * alone.front());
  expect_trained(training("two", 2, 16, {"--tensor", "2"}));
  expect_alike("two", "one");
  expect_trained(training("cut", 2, 16, {"--tensor", "2", "--sequence-parallel"}));
  expect_alike("cut", "one");
  expect_trained(training("grid", 4, 16, {"--mesh", "dp=2,tp=2"}));
  expect_alike("grid", "one");
  for (const char* name : {"two", "cut", "grid"})
    EXPECT_NEAR(last_accuracy(folder_ / name), last_accuracy(folder_ / "one"), 0.01) << name;
}

TEST_F(TensorOption, GoesOnAtAnyWidthAndIsEvaluatedWhole) {
  expect_trained(training("one", 1, 16));
  expect_trained(training("changing", 2, 5, {"--tensor", "2"}));
  expect_trained(training("changing", 1, 9));
  expect_trained(training("changing", 4, 13, {"--tensor", "4", "--sequence-parallel"}));
  expect_trained(training("changing", 4, 16, {"--mesh", "dp=2,tp=2"}));
  expect_alike("changing", "one");
  for (const char* name : {"one", "changing"}) {
    const RunResult result = run({program("dtrain"), "eval", "--checkpoint", (folder_ / name).string(),
                                  "--data-dir", folder_.path().string()},
                                 limited_to(std::chrono::seconds(60)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("test perplexity"));
  }
}

// A job of groups of two loses some of them and gets others: the last step is taken whole, for one file.
TEST_F(TensorOption, HasTheSameBitsForAnyNumberOfGroupsWithVirtualWorkers) {
  const auto train_to = [&](const std::string& name, int world, int steps, std::vector<std::string> more) {
    more.insert(more.end(), {"--virtual-workers", "8"});
    expect_trained(training(name, world, steps, more));
  };
  const std::vector<std::string> slices = {"--tensor", "2"},
                                 partitioned = {"--tensor", "2", "--shard", "optimizer"};
  train_to("one", 2, 8, slices);
  train_to("changing", 8, 2, slices);
  train_to("changing", 4, 3, partitioned);
  train_to("changing", 6, 5, slices);
  train_to("changing", 2, 7, partitioned);
  train_to("changing", 4, 8, slices);
  for (const char* name : {"one", "changing"}) train_to(name, 1, 9, {});
  EXPECT_EQ(final_weights(folder_ / "changing"), final_weights(folder_ / "one"));
  expect_trained(training("workers", 4, 9, slices));
  expect_alike("one", "workers");
}

// Stages whose layers are divided; four parts: words, two blocks, head.
TEST_F(TensorOption, GoesTogetherWithPipelines) {
  expect_trained(training("one", 1, 16));
  expect_trained(training("grid", 4, 16, {"--tensor", "2", "--pipeline", "2", "--micro-batches", "4"}));
  expect_alike("grid", "one");
  EXPECT_NEAR(last_accuracy(folder_ / "grid"), last_accuracy(folder_ / "one"), 0.01);
  const std::vector<std::string> laced = {"--mesh",          "pp=2,tp=2", "--schedule",         "interleaved",
                                          "--micro-batches", "4",         "--sequence-parallel"};
  expect_trained(training("changing", 4, 5, laced));
  expect_trained(training("changing", 1, 9));
  expect_trained(training("changing", 8, 13, {"--mesh", "dp=2,pp=2,tp=2", "--micro-batches", "2"}));
  expect_trained(training("changing", 2, 16, {"--tensor", "2"}));
  expect_alike("changing", "one");
}

// Each slice's state is with one of the workers that hold it.
TEST_F(TensorOption, SharesTheOptimizersStateOutAmongCopies) {
  const auto partitioned = [](std::vector<std::string> mesh) {
    mesh.insert(mesh.end(), {"--shard", "optimizer"});
    return mesh;
  };
  const std::vector<std::string> grid = {"--mesh", "dp=2,tp=2"},
                                 stages = {"--mesh", "dp=2,pp=2,tp=2", "--micro-batches", "2"};
  expect_trained(training("one", 1, 16));
  for (const auto& [name, world, form] : {std::tuple("grid", 4, grid), std::tuple("stages", 8, stages)}) {
    expect_trained(training(name, world, 8, form));
    expect_trained(training(name + std::string("-partitioned"), world, 8, partitioned(form)));
    EXPECT_EQ(losses(folder_ / (name + std::string("-partitioned"))), losses(folder_ / name)) << name;
  }
  expect_trained(training("changing", 8, 5, partitioned(stages)));
  expect_trained(training("changing", 1, 9));
  expect_trained(training("changing", 4, 12, partitioned(grid)));
  expect_trained(training("changing", 6, 16, partitioned({"--mesh", "dp=3,tp=2"})));
  expect_alike("changing", "one");
}

// Copies of a slice have a range each of its gradients, or of all; the limit on the norm is added up by
// ranges.
TEST_F(TensorOption, DividesGradientsAndParametersAmongCopies) {
  const auto sharded = [](std::vector<std::string> form, const char* what) {
    form.insert(form.end(), {"--shard", what});
    return form;
  };
  const std::vector<std::string> grid = {"--mesh", "dp=2,tp=2"};
  expect_trained(training("one", 1, 16));
  for (const char* what : {"gradients", "parameters"}) {
    expect_trained(training(what, 4, 16, sharded(grid, what)));
    expect_alike(what, "one");
    EXPECT_NEAR(last_accuracy(folder_ / what), last_accuracy(folder_ / "one"), 0.01) << what;
  }
  expect_trained(training("changing", 4, 3, sharded(grid, "gradients")));
  expect_trained(training("changing", 1, 5));
  expect_trained(
      training("changing", 6, 8, sharded({"--mesh", "dp=3,tp=2", "--sequence-parallel"}, "parameters")));
  expect_trained(training("changing", 2, 10, sharded({}, "parameters")));
  expect_trained(training("changing", 4, 12, sharded({"--tensor", "4"}, "gradients")));
  expect_trained(training("changing", 4, 14, sharded(grid, "optimizer")));
  expect_trained(training("changing", 4, 16, sharded(grid, "parameters")));
  expect_alike("changing", "one");
}

// What gradients lost goes on with the run, from the 11th step on: exactly in the same form, and within what
// is lost in others.
TEST_F(TensorOption, CompressesGradientsOfCopies) {
  const auto compressed = [](std::vector<std::string> form) {
    form.insert(form.end(), {"--compress", "powersgd:2", "--checkpoint-every", "13", "--eval-every", "0"});
    return form;
  };
  const auto grid = compressed({"--mesh", "dp=2,tp=2"}), copies = compressed({}),
             stages = compressed({"--mesh", "dp=2,pp=2,tp=2", "--micro-batches", "2"}),
             partitioned = compressed({"--mesh", "dp=2,tp=2", "--shard", "optimizer"});
  expect_trained(training("plain", 4, 17, {"--mesh", "dp=2,tp=2"}));
  for (const auto& [name, world, form] : {std::tuple("grid", 4, grid), std::tuple("stages", 8, stages),
                                          std::tuple("partitioned", 4, partitioned)}) {
    expect_trained(training(name, world, 17, form));
    const std::string again = name + std::string("-again");
    expect_trained(training(again, world, 13, form));
    expect_trained(training(again, world, 17, form));
    EXPECT_EQ(losses(folder_ / again), losses(folder_ / name)) << name;
  }
  EXPECT_EQ(losses(folder_ / "partitioned"), losses(folder_ / "grid"));
  expect_trained(training("changing", 2, 13, copies));
  expect_trained(training("changing", 4, 14, grid));
  expect_trained(training("changing", 8, 15, stages));
  expect_trained(training("changing", 2, 16, compressed({"--tensor", "2"})));
  expect_trained(training("changing", 2, 17, copies));
  const auto expected = losses(folder_ / "plain");
  for (const char* name : {"grid", "stages", "changing"}) {
    const auto got = losses(folder_ / name);
    EXPECT_NE(got, expected) << name;
    EXPECT_NEAR(got.back(), expected.back(), 0.25) << name;
  }
}

// Slices overflow one by one, and skip a step together. Sums of products are rounded to float16 in other
// places, so the numbers are near.
TEST_F(TensorOption, TakesFloat16) {
  const auto trained = [&](const std::string& name, int world, std::vector<std::string> more) {
    more.insert(more.end(), {"--precision", "fp16"});
    expect_trained(training(name, world, 12, more));
    return losses(folder_ / name);
  };
  const auto expected = trained("one", 1, {});
  const std::vector<std::pair<std::string, std::vector<std::string>>> forms = {
      {"tensor", {"--tensor", "2"}},
      {"shards", {"--mesh", "dp=2,tp=2", "--shard", "parameters"}},
      {"compressed", {"--mesh", "dp=2,tp=2", "--compress", "powersgd:8"}},
      {"stages", {"--tensor", "2", "--pipeline", "2", "--micro-batches", "4"}}};
  for (const auto& [name, form] : forms) {
    const auto got = trained(name, name == "tensor" ? 2 : 4, form);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-2) << name << " " << i;
  }
}

// The table of words is in the first stage and in the last.
TEST_F(TensorOption, TiesWordsInEveryForm) {
  const auto tied = [&](const std::string& name, int world, int steps, std::vector<std::string> more) {
    more.push_back("--tied");
    expect_trained(training(name, world, steps, more));
  };
  tied("one", 1, 12, {});
  expect_trained(training("untied", 1, 12));
  EXPECT_NE(losses(folder_ / "untied"), losses(folder_ / "one"));
  tied("shards", 2, 12, {"--shard", "parameters"});
  tied("parts", 1, 12, {"--virtual-workers", "2"});
  tied("changing", 2, 3, {"--pipeline", "2", "--micro-batches", "4"});
  tied("changing", 4, 6, {"--pipeline", "2", "--tensor", "2", "--micro-batches", "4"});
  tied("changing", 2, 7, {"--tensor", "2"});
  tied("changing", 4, 8, {"--mesh", "dp=2,tp=2", "--shard", "parameters"});
  tied("changing", 4, 10, {"--mesh", "dp=2,pp=2", "--micro-batches", "2"});
  tied("changing", 1, 12, {});
  for (const char* name : {"shards", "parts", "changing"}) expect_alike(name, "one");
}

TEST_F(TensorOption, SaysWhatCannotBe) {
  expect_refused({"--tensor", "2", "--pipeline", "2"}, "expected 2 workers to be a multiple of 2 x 2", 2);
  expect_refused({"--tensor", "2"}, "expected a divisor of the 3 workers, got 2", 3);
  expect_refused({"--mesh", "dp=2,tp=2"}, "mesh", 2);
  expect_refused({"--mesh", "dp=2,xp=2"}, "axes dp (data parallelism), tp (tensor parallelism) and pp", 4);
  expect_refused({"--tensor", "2", "--heads", "1"}, "got 1 heads", 2);
  expect_refused({"--tensor", "2", "--shard", "parameters", "--compress", "fp16"},
                 "expected none with --shard gradients and parameters", 2);
  expect_refused({"--tensor", "2", "--virtual-workers", "2"},
                 "at least one part for each of 3 groups of workers, got 2", 6);
  expect_refused({"--mesh", "pp=2,tp=2", "--virtual-workers", "4", "--micro-batches", "4"},
                 "expected nothing with --virtual-workers, whose parts are the micro-batches", 4);
  expect_refused({"--sequence-parallel"}, "--tensor N with it");
  expect_refused({"--heads", "5"}, "got 2 layers, a width of 32 and 5 heads");

  TrainingRun lenet = training("refused", 2, 1, {"--tensor", "2"});
  lenet.arguments = {"--model", "lenet", "--dataset", "synthetic:1x28x28,10,64", "--tensor", "2"};
  const RunResult result = train(lenet);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("expected a model that supports tensor parallelism (transformer), got lenet"));
}

}  // namespace
}  // namespace dtrain::test
