// report.html: complete, self-contained, of bounded size, and safe to open whatever the files say.
#include "runtime/metrics/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/report/page.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::Json;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// The data in a page, as its script gets it.
Json data_of(const std::string& page) {
  constexpr std::string_view kBegin = "id=\"data\">";
  const std::size_t begin = page.find(kBegin) + kBegin.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Json data_of(const RunDirectory& run) { return data_of(render_report(run)).at("runs").at(0); }

int count(const std::string& text, std::string_view what) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++found;
  return found;
}

RunDirectory small_run(const std::filesystem::path& path) {
  const auto run = RunDirectory::create(path);
  MetricsLog log(run.metrics(), 1);
  for (int i = 1; i <= 300; ++i) log.write(StepRecord{i, i / 100, 2.0 / i, 0.1, 1000});
  log.write(EvalRecord{0, 0.5, {{"accuracy", 0.87}}, 10000});
  return run;
}

TEST(Report, IsOneSafePage) {
  const TempDir folder;
  const auto run = small_run(folder / "my<script>run");
  run.write_config(
      R"({"options":{"note":{"value":"</script><script>alert('x')</script><!--","source":"flag"}}})");
  run.write_summary(R"({"status":"finished","steps":300,"test":{"accuracy":0.87}})");
  write_report(run);
  const std::string page = test::read_file(run.report());
  EXPECT_THAT(page, HasSubstr(std::string(kReportMark)));
  EXPECT_THAT(page, HasSubstr("<title>my&lt;script&gt;run"));
  EXPECT_EQ(count(page, "<script"), 7) << "the page's own: data and six files";
  EXPECT_EQ(count(page, "</script"), 7);
  EXPECT_EQ(count(page, "<!--"), 0);
  for (const char* outside : {"http://", "https://", "//cdn", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_THAT(page, Not(testing::ContainsRegex("url\\([^#]"))) << "but to its own parts";
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  const Json data = data_of(page).at("runs").at(0);
  EXPECT_EQ(data.at("config").at("options").at("note").at("value"),
            "</script><script>alert('x')</script><!--");
  EXPECT_EQ(data.at("curves").at("train_loss").at("x").size(), 300U);
  EXPECT_EQ(data.at("curves").at("evaluations").at(0).at("curve").at("y"), std::vector({0.87}));
  EXPECT_EQ(data.at("summary").at("status"), "finished");
}

TEST(Report, NeedsNothingButAFolder) {
  const TempDir folder;
  const Json nothing = data_of(RunDirectory(folder.path()));
  EXPECT_TRUE(nothing.at("config").is_null());
  EXPECT_TRUE(nothing.at("summary").is_null());
  EXPECT_EQ(nothing.at("last_step"), 0);
  EXPECT_TRUE(nothing.at("phases").is_null());
  EXPECT_TRUE(nothing.at("curves").at("train_loss").is_null());
  test::write_file(folder / "metrics.jsonl", "{\"event\":\"step\",\"step\":1,\"loss\":null}\n");
  const Json one = data_of(RunDirectory(folder.path()));
  EXPECT_EQ(one.at("last_step"), 1);
  EXPECT_EQ(one.at("curves").at("train_loss").at("y"), Json::parse("[null]"));
  EXPECT_TRUE(one.at("curves").at("train_loss").at("last").is_null());
  EXPECT_EQ(one.at("losses_not_finite"), Json::parse(R"({"count": 1, "first": 1})"));
}

TEST(Report, BrokenFilesAreNamedAndLeftOut) {
  const TempDir folder;
  const auto run = small_run(folder / "run");
  test::write_file(run.config(), "{\n  \"options\": nonsense\n}");
  test::write_file(run.summary(), std::string("\xff\xfe\0garbage", 10));
  std::ofstream(run.metrics(), std::ios::app) << "\x01\x02 garbage\n";
  const Json data = data_of(run);
  ASSERT_EQ(data.at("notes").size(), 2U);
  EXPECT_THAT(data.at("notes").at(0).get<std::string>(), HasSubstr("config.json"));
  EXPECT_THAT(data.at("notes").at(1).get<std::string>(),
              testing::AllOf(HasSubstr("summary.json"), HasSubstr("; what it says is left out.")));
  EXPECT_TRUE(data.at("config").is_null());
  EXPECT_TRUE(data.at("summary").is_null());
  EXPECT_EQ(data.at("lines"), Json::parse(R"({"read": 302, "left_out": 1, "first_left_out": 302})"));
  EXPECT_EQ(data.at("curves").at("train_loss").at("x").size(), 300U);
}

TEST(Report, ThinnedCurvesKeepWhatTablesSayOfThem) {
  const TempDir folder;
  {
    std::ofstream log(folder / "metrics.jsonl");
    for (int i = 1; i <= 3000; ++i)
      log << R"({"event":"step","step":)" << i << R"(,"loss":)" << (i == 1234 ? 7.0 : 1.0 / i) << "}\n";
    log << R"({"event":"step","step":3001,"loss":null})"
        << "\n";
  }
  const Json loss = data_of(RunDirectory(folder.path())).at("curves").at("train_loss");
  EXPECT_EQ(loss.at("x").size(), 800U);
  EXPECT_EQ(loss.at("most"), Json::parse(R"({"x": 1234.0, "y": 7.0})"));
  EXPECT_EQ(loss.at("last"), 0.000333333) << "as the file has it";
}

TEST(Report, ManyLinesGiveASmallPage) {
  const TempDir folder;
  {
    std::ofstream log(folder / "metrics.jsonl");
    for (int i = 1; i <= 200'000; ++i)
      log << R"({"event":"step","step":)" << i << R"(,"loss":)" << (i % 97) * 0.123456789 << R"(,"time":)"
          << 1000 + i << "}\n";
  }
  const std::string page = render_report(RunDirectory(folder.path()));
  EXPECT_LT(page.size(), 400'000U);
  const Json loss = data_of(page).at("runs").at(0).at("curves").at("train_loss");
  EXPECT_EQ(loss.at("x").size(), 800U);
  EXPECT_EQ(loss.at("x").at(799), 200000.0);
  EXPECT_EQ(loss.at("low").at(0), 0.0);
  EXPECT_NEAR(loss.at("high").at(0).get<double>(), 96 * 0.123456789, 1e-4);
}

TEST(Report, RunsSideBySideHaveNamesOfTheirOwn) {
  EXPECT_THAT(distinct_names({"/a/runs/x", "/b/runs/x", "/b/runs/y/"}),
              ElementsAre("a/runs/x", "b/runs/x", "y"));
  EXPECT_THAT(distinct_names({"/x", "/a/x"}), ElementsAre("x", "a/x"));
  EXPECT_THAT(distinct_names({"/"}), ElementsAre("/"));
  const TempDir folder;
  const std::vector<RunDirectory> runs = {small_run(folder / "a"), small_run(folder / "b")};
  const std::string page = render_report(runs);
  const Json data = data_of(page);
  ASSERT_EQ(data.at("runs").size(), 2U);
  EXPECT_EQ(data.at("runs").at(1).at("name"), "b");
  EXPECT_THAT(page, HasSubstr("<title>a, b"));
}

TEST(Report, ManyRunsShareThePage) {
  const TempDir folder;
  std::vector<RunDirectory> runs;
  for (int i = 0; i < 40; ++i) runs.push_back(small_run(folder / ("run-" + std::to_string(i))));
  const std::string page = render_report(runs);
  EXPECT_LT(page.size(), 2'000'000U);
  EXPECT_EQ(data_of(page).at("runs").at(39).at("curves").at("train_loss").at("x").size(), 200U);
}

}  // namespace
}  // namespace dtrain
