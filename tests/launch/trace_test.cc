// --trace on real training of two workers: what the files hold, and that they change nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

using test::Json;

/// A span of a trace file, in whole nanoseconds since the moment all files share.
struct Drawn {
  std::string name, category;
  std::int64_t thread = 0, start = 0, end = 0;
};

std::vector<Drawn> read_spans(const std::filesystem::path& file, int rank) {
  std::vector<Drawn> spans;
  const Json trace = Json::parse(read_file(file));
  for (const Json& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), rank) << event;
    if (event.at("ph") != "X") continue;
    const double start = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(start, 0) << event;
    EXPECT_GE(duration, 0) << event;
    const std::int64_t start_ns = std::llround(start * 1000);
    spans.push_back({event.at("name"), event.at("cat"), event.at("tid"), start_ns,
                     start_ns + std::llround(duration * 1000)});
  }
  return spans;
}

bool overlap(const Drawn& a, const Drawn& b) { return a.start < b.end && b.start < a.end; }

std::vector<Drawn> named(const std::vector<Drawn>& spans, const std::string& prefix) {
  std::vector<Drawn> found;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(found),
               [&](const Drawn& span) { return span.name.starts_with(prefix); });
  return found;
}

// On each thread a span lies within or beside every other one.
void expect_nested(const std::vector<Drawn>& spans) {
  std::map<std::int64_t, std::vector<Drawn>> open;
  for (const Drawn& span : spans) {  // by start, an enclosing one first
    auto& stack = open[span.thread];
    while (!stack.empty() && stack.back().end <= span.start) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(span.end, stack.back().end) << span.name << " in " << stack.back().name;
    }
    stack.push_back(span);
  }
}

class TraceOfTwo : public ::testing::Test {
 protected:
  static constexpr int kWorld = 2;

  void SetUp() override { write_small_dataset(folder_ / "data", 3000, 100); }

  // The perceptron's gradients fill two buckets; a large batch makes backward long enough to hide one.
  RunResult run(const std::string& name, const std::vector<std::string>& more) {
    TrainingRun run;
    run.world = kWorld;
    run.arguments = {"--model",   "mlp", "--data-dir",   (folder_ / "data").string(),
                     "--epochs",  "2",   "--batch-size", "250",
                     "--backend", "tcp", "--log-every",  "1"};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    run.run_dir = folder_ / name;
    run.options = limited_to(std::chrono::seconds(100));
    return train(run);
  }
  std::filesystem::path file(const std::string& name, int rank) const {
    return folder_ / name / ("trace-rank" + std::to_string(rank) + ".json");
  }

  TempDir folder_;
};

TEST_F(TraceOfTwo, ShowsWhatEveryRankDidAndWhen) {
  const RunResult result = run("run", {"--trace", "auto", "--trace-steps", "2:12", "--loader-threads", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::vector<Drawn>> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.push_back(read_spans(file("run", rank), rank));
    expect_nested(ranks.back());
    for (const char* name : {"step 2", "step 12", "wait for batch", "decode batch", "copy to device",
                             "forward", "backward", "all_reduce bucket 0", "all_reduce bucket 1", "matmul",
                             "sgd", "communication", "optimizer", "checkpoint", "evaluation"})
      EXPECT_FALSE(named(ranks.back(), name).empty()) << name << " of rank " << rank;
    EXPECT_EQ(named(ranks.back(), "step ").size(), 11U);
  }
  const auto kernels = named(ranks[0], "matmul");
  const auto forward = named(ranks[0], "forward");
  EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const Drawn& kernel) {
    return kernel.thread == forward[0].thread && overlap(kernel, forward[0]);
  }));
  // Each step ends in a sum over both: on a common clock no rank can be through before the other begins.
  const auto mine = named(ranks[0], "step "), theirs = named(ranks[1], "step ");
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].name, theirs[i].name);
    EXPECT_TRUE(overlap(mine[i], theirs[i])) << mine[i].name;
  }
}

// On a busy machine the thread that sends may not run before backward ends: it has to in one of several runs.
TEST_F(TraceOfTwo, ShowsGradientsCrossingDuringBackward) {
  int hidden = 0;
  for (int attempt = 0; attempt < 10 && hidden == 0; ++attempt) {
    const std::string name = "run" + std::to_string(attempt);
    const RunResult result = run(name, {"--trace", "auto", "--trace-steps", "2:12"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto spans = read_spans(file(name, 0), 0);
    const auto backward = named(spans, "backward"), buckets = named(spans, "all_reduce bucket 0");
    ASSERT_EQ(buckets.size(), 11U);
    for (const Drawn& bucket : buckets) {
      hidden += static_cast<int>(std::any_of(backward.begin(), backward.end(), [&](const Drawn& pass) {
        return pass.thread != bucket.thread && overlap(pass, bucket);
      }));
    }
  }
  EXPECT_GT(hidden, 0);
}

TEST_F(TraceOfTwo, ChangesNoWeight) {
  ASSERT_EQ(run("plain", {}).exit_code, 0);
  ASSERT_EQ(run("traced", {"--trace", "auto", "--trace-steps", "1:1000"}).exit_code, 0);
  EXPECT_EQ(losses(folder_ / "plain"), losses(folder_ / "traced"));
  EXPECT_EQ(final_weights(folder_ / "plain"), final_weights(folder_ / "traced"));
}

TEST_F(TraceOfTwo, IsThereWhenTrainingFails) {
  const RunResult result = run("run", {"--trace", "auto", "--trace-steps", "1:1000", "--lr", "1e30"});
  ASSERT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("the loss is"), std::string::npos) << result.err;
  for (int rank = 0; rank < kWorld; ++rank)
    EXPECT_FALSE(named(read_spans(file("run", rank), rank), "step 1").empty());
}

TEST_F(TraceOfTwo, GoesWhereItIsTold) {
  const auto target = folder_ / "elsewhere/t.json";
  ASSERT_EQ(run("run", {"--trace", target.string(), "--max-steps", "6"}).exit_code, 0);
  for (const char* name : {"t-rank0.json", "t-rank1.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / "elsewhere" / name)) << name;
}

}  // namespace
}  // namespace dtrain::test
