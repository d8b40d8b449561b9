// Which steps a tracer records, and what becomes of them.
#include "training/log/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::Json;
using testing::ElementsAre;
using testing::HasSubstr;

class TracerTest : public testing::Test {
 protected:
  // Steps `begin` … `end` with a span each, and one span between steps.
  static void run(Tracer& tracer, std::int64_t begin, std::int64_t end) {
    for (std::int64_t step = begin; step <= end; ++step) {
      tracer.begin_step(step);
      const std::string name = std::to_string(step);
      const SpanScope span(tracer.spans(), name, "step");
    }
  }
  std::vector<std::string> names(const std::string& file) const {
    std::vector<std::string> names;
    const Json trace = Json::parse(test::read_file(folder_ / file));
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") names.push_back(event.at("name"));
    }
    return names;
  }

  test::TempDir folder_;
  WorkerLog log_{"test"};
};

TEST_F(TracerTest, WithoutTraceNothingIsTimed) {
  Tracer tracer(std::nullopt, 0, log_);
  EXPECT_EQ(tracer.spans(), nullptr);
  tracer.begin_run(folder_.path(), 0, 0);
  run(tracer, 1, 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TracerTest, AFewStepsAfterWarmUp) {
  Tracer tracer(TraceRequest{{}, {}, {}}, 2, log_);
  tracer.begin_run(folder_.path(), 100, 0);
  run(tracer, 101, 120);
  EXPECT_THAT(names("trace-rank2.json"), ElementsAre("103", "104", "105", "106", "107"));
}

TEST_F(TracerTest, FileIsThereOnceTheLastStepIsOver) {
  Tracer tracer(TraceRequest{(folder_ / "new/t.json").string(), 2, 3}, 0, log_);
  tracer.begin_run("/nowhere", 0, 0);
  run(tracer, 1, 3);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new/t-rank0.json"));
  { const SpanScope span(tracer.spans(), "evaluation", "phase"); }
  run(tracer, 4, 4);
  EXPECT_THAT(names("new/t-rank0.json"), ElementsAre("2", "3", "evaluation"));
}

TEST_F(TracerTest, WritesWhatThereIsWhenTrainingFails) {
  try {
    Tracer tracer(TraceRequest{{}, 2, 1000}, 0, log_);
    tracer.begin_run(folder_.path(), 0, 0);
    run(tracer, 1, 3);
    tracer.begin_step(4);
    const SpanScope span(tracer.spans(), "failing", "step");
    throw Error("no more");
  } catch (const Error&) {
  }
  EXPECT_THAT(names("trace-rank0.json"), ElementsAre("2", "3", "failing"));
}

TEST_F(TracerTest, SaysThatTheStepsWereNeverReached) {
  testing::internal::CaptureStderr();
  {
    Tracer tracer(TraceRequest{{}, 10, 12}, 0, log_);
    tracer.begin_run(folder_.path(), 0, 0);
    run(tracer, 1, 4);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("steps 10 to 12 were to be traced"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TracerTest, ARunFolderThatIsElsewhereIsAWarning) {
  testing::internal::CaptureStderr();
  Tracer tracer(TraceRequest{{}, 1, 2}, 1, log_);
  tracer.begin_run(folder_ / "elsewhere", 0, 0);
  run(tracer, 1, 4);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("elsewhere is not on this machine"));
}

TEST_F(TracerTest, AFolderThatCannotBeIsRefusedBeforeTheFirstStep) {
  test::write_file(folder_ / "file", "");
  Tracer tracer(TraceRequest{(folder_ / "file/t.json").string(), {}, {}}, 0, log_);
  EXPECT_THROW(tracer.begin_run(folder_.path(), 0, 0), UsageError);
}

TEST_F(TracerTest, ProfilersHearOfStepsThatAreNotTraced) {
  struct Counting final : SpanListener {
    void begin(std::string_view) noexcept override { ++begun; }
    void end() noexcept override { ++ended; }
    int begun = 0, ended = 0;
  } profiler;
  Tracer tracer(std::nullopt, 0, log_);
  tracer.set_listener(profiler);
  tracer.begin_run(folder_.path(), 0, 0);
  run(tracer, 1, 7);
  EXPECT_EQ(profiler.begun, 7);
  EXPECT_EQ(profiler.ended, 7);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST(TraceFile, RankGoesBeforeTheEnding) {
  EXPECT_EQ(trace_file_of_rank("a/t.json", 3), "a/t-rank3.json");
  EXPECT_EQ(trace_file_of_rank("trace", 0), "trace-rank0");
}

}  // namespace
}  // namespace dtrain
