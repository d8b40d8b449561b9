// What the report reads of a run's files: every line once, garbage counted and never believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/report/metrics_reader.h"
#include "runtime/metrics/report/pictures.h"
#include "runtime/metrics/report/run_files.h"
#include "runtime/metrics/report/run_follower.h"
#include "runtime/metrics/report/thin.h"
#include "runtime/metrics/report/trace_phases.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

RunMetrics metrics_of(std::string_view text) {
  MetricsReader reader;
  reader.add(text);
  return reader.metrics();
}

std::vector<double> values_of(const Curve& curve) {
  std::vector<double> values;
  for (const CurvePoint& point : curve) values.push_back(point.value);
  return values;
}

TEST(ReportReader, CurvesComeFromTheLines) {
  const RunMetrics metrics = metrics_of(
      "{\"event\":\"step\",\"step\":1,\"loss\":2.5,\"lr\":0.1,\"samples_per_second\":100,\"allocated_bytes\":"
      "10,"
      "\"resident_bytes\":20,\"time\":1000}\n"
      "{\"event\":\"step\",\"step\":2,\"loss\":2.0,\"time\":1003.5}\n"
      "{\"event\":\"eval\",\"epoch\":0,\"loss\":1.5,\"accuracy\":0.5,\"samples\":10}\n");
  EXPECT_THAT(values_of(metrics.train_loss), ElementsAre(2.5, 2.0));
  EXPECT_EQ(metrics.train_loss[1].seconds, 3.5);
  EXPECT_THAT(values_of(metrics.learning_rate), ElementsAre(0.1));
  EXPECT_THAT(values_of(metrics.samples_per_second), ElementsAre(100));
  EXPECT_THAT(values_of(metrics.allocated_bytes), ElementsAre(10));
  EXPECT_THAT(values_of(metrics.resident_bytes), ElementsAre(20));
  EXPECT_THAT(values_of(metrics.eval_loss), ElementsAre(1.5));
  ASSERT_EQ(metrics.eval_metrics.size(), 1U);
  EXPECT_EQ(metrics.eval_metrics.at("accuracy")[0].step, 2);
  EXPECT_EQ(metrics.epochs.at(0).loss, 1.5);
  EXPECT_EQ(metrics.last_step, 2);
}

TEST(ReportReader, WhatTrainingWritesIsReadBack) {
  const TempDir folder;
  {
    MetricsLog log(folder / "metrics.jsonl", 1);
    log.write(StepRecord{10, 0, 0.5, 0.1, 100, 1000});
    log.write(PhasesRecord{50, 50, {{"forward", {1, 3}}, {"backward", {2, 4}}}});
    log.write(PhasesRecord{100, 50, {{"forward", {3, 5}}, {"backward", {2, 4}}}});
    log.write(EpochRecord{0, 100, 7.25, true, 1008});
    log.write(EvalRecord{0, 0.25, {{"accuracy", 0.875}}, 10000});
    log.write(EpochRecord{1, 200, 3.5, false, 1012});
    for (std::int64_t shown = 1; shown <= 25; ++shown) log.write(SampleRecord{100 * shown, "a → \"b\""});
  }
  const RunMetrics metrics = metrics_of(test::read_file(folder / "metrics.jsonl"));
  EXPECT_EQ(metrics.lines_left_out, 0);
  EXPECT_EQ(metrics.epochs.at(0).seconds, 7.25);
  EXPECT_TRUE(metrics.epochs.at(0).whole);
  EXPECT_FALSE(metrics.epochs.at(1).whole);
  EXPECT_EQ(metrics.eval_loss.at(0).step, 100) << "an evaluation is at its epoch's last step, logged or not";
  EXPECT_THAT(metrics.phases.parts, ElementsAre("backward", "forward"));
  EXPECT_THAT(metrics.phases.milliseconds[0], ElementsAre(2, 2)) << "the mean over all steps";
  EXPECT_THAT(metrics.phases.milliseconds[1], ElementsAre(4, 4));
  EXPECT_EQ(metrics.shown.size(), 20U) << "the newest";
  EXPECT_EQ(metrics.shown.begin()->first, 600);
  EXPECT_EQ(metrics.shown.at(2500), "a → \"b\"");
}

TEST(ReportReader, GarbageIsCountedWithItsLine) {
  const RunMetrics metrics = metrics_of(
      "{\"event\":\"step\",\"step\":1,\"loss\":1}\nnot json\n[1]\n{\"event\":\"other\"}\n{\"event\":7}\n"
      "{\"event\":\"step\",\"step\":\"x\",\"loss\":\"y\"}\n{\"event\":\"step\",\"step\":1e300,\"loss\":1e999}"
      "\n{\"torn");
  EXPECT_EQ(metrics.lines, 7);
  EXPECT_EQ(metrics.lines_left_out, 3) << "no JSON, no object, and a number that is too large";
  EXPECT_EQ(metrics.first_line_left_out, 2);
}

TEST(ReportReader, NoNumberIsAGapAndIsCounted) {
  const RunMetrics metrics = metrics_of(
      "{\"event\":\"step\",\"step\":1,\"loss\":1}\n{\"event\":\"step\",\"step\":2,\"loss\":null}\n"
      "{\"event\":\"step\",\"step\":3,\"loss\":null}\n");
  ASSERT_EQ(metrics.train_loss.size(), 3U);
  EXPECT_TRUE(std::isnan(metrics.train_loss[1].value));
  EXPECT_EQ(metrics.losses_not_finite, 2);
  EXPECT_EQ(metrics.first_loss_not_finite, 2);
}

TEST(ReportReader, StepsThatBeginAgainReplaceTheOldOnes) {
  std::string text;
  for (const int step : {1, 2, 3, 2, 3, 4})
    text += "{\"event\":\"step\",\"step\":" + std::to_string(step) +
            ",\"loss\":" + std::to_string(text.size()) + "}\n";
  const RunMetrics metrics = metrics_of(text);
  ASSERT_EQ(metrics.train_loss.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(metrics.train_loss[i].step, static_cast<double>(i + 1));
}

TEST(ReportReader, AStartThatWasLeftBehindCountsForNothing) {
  const auto line = [](int step, double loss, int start) {
    return "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) +
           ",\"start\":" + std::to_string(start) + "}\n";
  };
  const RunMetrics metrics = metrics_of(line(1, 1, 1) + line(2, 2, 1) + line(2, 5, 2) + line(3, 3, 1) +
                                        line(4, 4, 1) + line(3, 6, 2));
  EXPECT_THAT(values_of(metrics.train_loss), ElementsAre(1, 5, 6));
  EXPECT_EQ(metrics.last_step, 3);
}

TEST(ReportReader, PiecesOfAnySizeGiveTheSame) {
  const std::string text =
      "{\"event\":\"step\",\"step\":1,\"loss\":2}\ngarbage\n{\"event\":\"step\",\"step\":2,\"loss\":1}\n";
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    MetricsReader reader;
    for (std::size_t at = 0; at < text.size(); at += piece)
      reader.add(std::string_view(text).substr(at, piece));
    EXPECT_THAT(values_of(reader.metrics().train_loss), ElementsAre(2, 1)) << piece;
    EXPECT_EQ(reader.metrics().lines_left_out, 1);
  }
}

TEST(ReportReader, ALineWithoutEndDoesNotFillMemory) {
  MetricsReader reader;
  for (int i = 0; i < 3000; ++i) reader.add(std::string(1000, 'x'));
  reader.add("\n{\"event\":\"step\",\"step\":1,\"loss\":2}\n");
  EXPECT_EQ(reader.metrics().lines_left_out, 1);
  EXPECT_EQ(reader.metrics().train_loss.size(), 1U);
}

TEST(ReportReader, LongCurvesKeepTheirPeaks) {
  Curve curve;
  for (int i = 0; i < 100'000; ++i)
    curve.push_back({double(i + 1), double(i), i == 54'321 ? 99.0 : i % 2 == 0 ? 1.0 : 3.0});
  const auto thin = thin_out(curve, 100);
  ASSERT_EQ(thin.size(), 100U);
  EXPECT_EQ(thin[0].mean, 2.0);
  EXPECT_EQ(thin[0].low, 1.0);
  EXPECT_EQ(thin[54].high, 99.0);
  EXPECT_EQ(thin.back().step, 100'000);
  EXPECT_EQ(thin_out(curve, 200'000).size(), 100'000U);
  EXPECT_TRUE(thin_out({}, 100).empty());
}

TEST(ReportFiles, AFileThatIsNoJsonIsNamedWithItsLine) {
  const std::string said = test::message_of([] { object_in("{\n\"options\": {\n!", "runs/x/config.json"); });
  EXPECT_THAT(said, HasSubstr("runs/x/config.json"));
  EXPECT_THAT(said, HasSubstr("line 3"));
  EXPECT_THROW(object_in("[]", "x"), DataError);
  EXPECT_THROW(object_in("{\"loss\":1e999}", "x"), DataError);
}

TEST(ReportFiles, NoFileMakesADeepPage) {
  EXPECT_EQ(object_in(R"({"b":1,"options":{"a":{"value":"x","more":{"y":{"z":1}}}},"a":[1]})", "x"),
            R"({"b":1,"options":{"a":{"value":"x","more":{}}},"a":[1]})");
  EXPECT_EQ(object_in(R"({"fields":[{"name":"tokens","shape":[65,[1]]},7,[[[2]]]]})", "x"),
            R"({"fields":[{"name":"tokens","shape":[65]},7,[[]]]})");
  EXPECT_EQ(object_in(R"({"long":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"a":1})", "x"), R"({"a":1})");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_EQ(object_in(deep + "1" + std::string(100'000, '}'), "x"), R"({"a":{"a":{"a":{}}}})");
}

TEST(ReportFiles, StartsAndTroublesComeFromTheLog) {
  const LogFacts facts = log_facts(
      "dtrain: rank 0: rank 0 of 2, pid 1, cpu (oneDNN), backend tcp\ndtrain: rank 0: error: peer lost\n"
      "dtrain: rank 0: rank 0 of 1, pid 2, cpu (oneDNN), backend self\ndtrain: warning: slow\nrank 0 of\n, "
      "pid rank 0 of ",
      1);
  EXPECT_THAT(facts.starts,
              ElementsAre("2 workers, cpu (oneDNN), backend tcp", "1 worker, cpu (oneDNN), backend self"));
  EXPECT_THAT(facts.troubles, ElementsAre("warning: slow"));
}

TEST(ReportFiles, AConfusionIsWholeOfFewClassesAndItsWorstOfMany) {
  EXPECT_EQ(
      shown_evaluation(R"({"epoch":2,"classes":["a","b"],"confusion":[[0,0,5],[0,1,2],[1,1,4]],"mistakes":)"
                       R"([{"sample":7,"label":0,"predicted":1,"probability":0.25,"file":"d/7.png"},)"
                       R"({"sample":8,"label":1,"predicted":0,"probability":0.5,"file":8}],"sheet":null})",
                       "x"),
      R"({"epoch":2,"samples":11,"classes":["a","b"],"matrix":[[5,2],[0,4]],"confused":)"
      R"([{"label":"a","predicted":"b","count":2,"of":7}],"mistakes":)"
      R"([{"sample":7,"label":"a","predicted":"b","probability":0.25,"file":"d/7.png"},)"
      R"({"sample":8,"label":"b","predicted":"a","probability":0.5}],"sheet":null})");
  std::string classes, confusion;
  for (int i = 0; i < 1000; ++i) {
    classes += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\"";
    confusion += (i == 0 ? "[" : ",[") + std::to_string(i) + "," + std::to_string((i + 1) % 1000) + "," +
                 std::to_string(i % 7 + 1) + "]";
  }
  const std::string many = shown_evaluation(
      R"({"epoch":0,"classes":[)" + classes + R"(],"confusion":[)" + confusion + R"(],"mistakes":[]})", "x");
  EXPECT_THAT(many,
              HasSubstr(R"("classes":[],"matrix":null,"confused":[{"label":"6","predicted":"7","count":7)"));
  EXPECT_LT(many.size(), 2000U) << "a page stays small";
}

TEST(ReportFiles, NothingButAPictureIsLoadedByAPage) {
  const auto batch = [](const std::string& image, const char* columns = "8") {
    return shown_batch(
        R"({"sheet":{"image":")" + image + R"(","columns":)" + columns +
            R"(,"cell":[96,96],"size":[96,64]},"samples":[{"sample":3,"label":"a"},{"sample":4}]})",
        "runs/x/batch.json");
  };
  EXPECT_THAT(batch("data:image/jpeg;base64,/9j/4A=="),
              HasSubstr(R"("columns":8,"cell":[96,96],"size":[96,64])"));
  for (const char* image : {"https://example.org/x.jpg", "data:image/svg+xml;base64,AAAA",
                            "data:image/jpeg;base64,AA\\u0022 onerror=", "javascript:0"})
    EXPECT_THROW(batch(image), DataError) << image;
  EXPECT_THROW(batch("data:image/jpeg;base64,AAAA", "-1"), DataError);
  EXPECT_THAT(test::message_of([&] { batch("x"); }), HasSubstr("runs/x/batch.json"));
  for (const char* text :
       {"", "[]", "{", "{\"classes\":7}", "{\"classes\":[\"a\"],\"confusion\":[[0,1,2]],\"mistakes\":[]}",
        "{\"classes\":[\"a\"],\"confusion\":[[0,0,1e999]],\"mistakes\":[]}",
        "{\"epoch\":0,\"classes\":[\"a\"],\"confusion\":[],\"mistakes\":[{\"sample\":0,\"label\":9}]}"})
    EXPECT_THROW(shown_evaluation(text, "x"), DataError) << text;
}

TEST(ReportTrace, PhasesAreMeansOfItsSteps) {
  const auto span = [](const char* name, const char* category, int micros) {
    return std::string(R"({"ph":"X","pid":1,"name":")") + name + R"(","cat":")" + category + R"(","dur":)" +
           std::to_string(micros) + "}";
  };
  PhaseTimes times;
  add_trace("{\"traceEvents\":[" + span("step 3", "step", 10000) + "," + span("forward", "phase", 4000) +
                "," + span("step 4", "step", 20000) + "," + span("forward", "phase", 6000) + ",7]}",
            times);
  EXPECT_THAT(times.parts, ElementsAre("forward", "other"));
  EXPECT_THAT(times.ranks, ElementsAre(1));
  EXPECT_THAT(times.milliseconds[0], ElementsAre(5, 10));
  EXPECT_THAT(times.measured, HasSubstr("steps 3 to 4"));
  for (const char* garbage :
       {"", "[]", "{\"traceEvents\":7}", "{\"traceEvents\":[{\"ph\":\"X\",\"dur\":1e999}]}"})
    add_trace(garbage, times);
  EXPECT_EQ(times.ranks.size(), 1U);
}

TEST(RunFollower, ReadsWhatIsNewAndStartsAgainAfterACut) {
  const TempDir folder;
  RunFollower run{RunDirectory(folder.path())};
  run.poll();
  EXPECT_EQ(run.metrics().lines, 0) << "nothing there yet";
  const auto lines = [](int from, int to) {
    std::string text;
    for (int i = from; i <= to; ++i) text += format_record(StepRecord{i, 0, 1.0 * i, 0.1, 10}) + "\n";
    return text;
  };
  test::write_file(folder / "metrics.jsonl", lines(1, 5));
  EXPECT_TRUE(run.poll());
  EXPECT_FALSE(run.poll());
  test::write_file(folder / "metrics.jsonl", lines(1, 7));
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics().train_loss.size(), 7U);
  // Cut after step 2 and longer again than it was: only what was read tells.
  test::write_file(folder / "metrics.jsonl", lines(1, 2) + lines(4, 11));
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics().train_loss.size(), 10U);
  std::filesystem::remove(folder / "metrics.jsonl");
  EXPECT_TRUE(run.poll());
  EXPECT_EQ(run.metrics().lines, 0);
}

}  // namespace
}  // namespace dtrain
