// report.html: complete, self-contained, and safe to open whatever the files say.
#include "runtime/metrics/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/report_chart.h"
#include "runtime/metrics/report_data.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(ReportData, CurvesComeFromTheLog) {
  ReportData data;
  add_metrics(
      "{\"event\":\"step\",\"step\":1,\"loss\":2.5}\nnot "
      "json\n{\"event\":\"step\",\"step\":2,\"loss\":null}\n"
      "{\"event\":\"eval\",\"epoch\":0,\"loss\":1.5,\"accuracy\":0.5}\n{\"event\":\"other\"}\n{\"event\":7}"
      "\n{\"torn",
      data);
  ASSERT_EQ(data.train_loss.size(), 1U);
  EXPECT_EQ(data.train_loss[0].y, 2.5);
  ASSERT_EQ(data.accuracy.size(), 1U);
  EXPECT_EQ(data.accuracy[0].x, 2);
  EXPECT_EQ(data.eval_loss[0].y, 1.5);
  EXPECT_EQ(data.unreadable_lines, 2);
}

TEST(ReportData, TablesAreFlat) {
  const auto rows =
      table_of(R"({"lr":{"value":0.2,"source":"flag"},"model":"lenet","data":{"shape":[1,28]}})", "x");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name + "|" + rows[0].value + "|" + rows[0].source, "lr|0.2|flag");
  EXPECT_EQ(rows[1].name + "|" + rows[1].value + "|" + rows[1].source, "model|lenet|");
  EXPECT_EQ(rows[2].name + "|" + rows[2].value + "|" + rows[2].source, "data.shape|[1,28]|");
  const auto numbers = table_of(R"({"loss":0.28292282670736313,"resident_bytes":84697088})", "x");
  EXPECT_EQ(numbers.at(0).value, "0.282923");
  EXPECT_EQ(numbers.at(1).value, "84697088 (80.8 MiB)");
  EXPECT_THROW(table_of("{", "config.json"), DataError);
}

TEST(ReportChart, TicksAreRound) {
  EXPECT_THAT(chart_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(chart_ticks(-0.5, 0.9, 3), ElementsAre(-0.5, 0, 0.5));
  EXPECT_TRUE(chart_ticks(1, 1, 5).empty());
  EXPECT_TRUE(chart_ticks(0, std::nan(""), 5).empty());
}

TEST(ReportChart, LongCurvesAreAveraged) {
  std::vector<ReportPoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0});
  const auto thin = thin_out(points, 100);
  ASSERT_EQ(thin.size(), 100U);
  for (const auto& point : thin) EXPECT_EQ(point.y, 2.0);
  EXPECT_EQ(thin.front().x, 4.5);
  EXPECT_EQ(thin_out(points, 1000).size(), 1000U);
}

TEST(ReportChart, OnePointAndNone) {
  EXPECT_THAT(render_chart("Loss", {{"training", "train", {}, false}}), HasSubstr("No points"));
  const std::string one = render_chart("Loss", {{"training", "train", {{1, 2}}, true}});
  EXPECT_THAT(one, HasSubstr("<circle"));
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(one, Not(HasSubstr("inf")));
}

TEST(Report, IsOneSafePage) {
  const TempDir folder;
  const auto run = RunDirectory::create(folder / "my<run>");
  {
    MetricsLog log(run.metrics(), 1);
    for (int i = 1; i <= 300; ++i) log.write(StepRecord{i, i / 100, 2.0 / i, 0.1, 1000});
    log.write(EvalRecord{0, 0.5, {{"accuracy", 0.87}}, 10000});
  }
  run.write_config(R"({"note":{"value":"<script>alert('x')</script>","source":"flag"}})");
  run.write_summary(R"({"accuracy":0.87})");
  write_report(run);
  const std::string page = test::read_file(run.report());
  EXPECT_THAT(page, HasSubstr("<title>my&lt;run&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, HasSubstr("polyline class=\"train\""));
  EXPECT_THAT(page, HasSubstr("evaluation: last 0.87"));
  EXPECT_THAT(page, HasSubstr("<th>accuracy</th><td>0.87</td>"));
}

TEST(Report, NeedsOnlyTheLog) {
  const TempDir folder;
  const RunDirectory run(folder.path());
  EXPECT_THROW(render_report(run), SystemError);
  test::write_file(run.metrics(), "");
  EXPECT_THAT(render_report(run), HasSubstr("There is no summary.json"));
}

}  // namespace
}  // namespace dtrain
