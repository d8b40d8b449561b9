// `dtrain doctor` for a whole job: one table, and on hosts of their own a slow link and a bad folder are
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DoctorOfAJob, PrintsOneTableFittedToTheTerminal) {
  TempDir folder;
  RunOptions options = limited_to(seconds(60));
  options.environment = {{"COLUMNS", "60"}};
  const RunResult result = launch(
      {"--nproc_per_node=3", "dtrain", "doctor", "--seconds=0.05", "--run-dir", folder.path().string()},
      options);
  EXPECT_THAT(result.out, AllOf(HasSubstr("3 workers on 1 host; all_reduce of 4 MiB by"),
                                ContainsRegex("rank +host +matmul GFLOP/s"), HasSubstr("link MB/s")))
      << result.err;
  std::istringstream lines(result.out.substr(result.out.find("rank ")));
  for (std::string line; std::getline(lines, line) && !line.starts_with("BAD") && !line.starts_with("*");)
    EXPECT_LE(line.size(), 60U) << result.out;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file that was written is left";
}

class DoctorOnHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_ = std::make_unique<NetnsLab>(4);
  }

  // One worker a host; what rank 0 prints.
  Json examine() {
    std::vector<std::unique_ptr<Running>> launchers;
    for (int host = 0; host < 4; ++host) {
      const std::vector<std::string> argv = {program("dtrain-launch"),
                                             "--nnodes=4",
                                             "--node_rank=" + std::to_string(host),
                                             "--master_addr=" + NetnsLab::address(0),
                                             "--nproc_per_node=1",
                                             "dtrain",
                                             "doctor",
                                             "--json",
                                             "--seconds=0.05"};
      launchers.push_back(std::make_unique<Running>(
          lab_->command(host, argv),
          std::map<std::string, std::string>{{"DTRAIN_TOKEN", std::string(64, 'a')},
                                             {"OMP_NUM_THREADS", "1"},
                                             {"DTRAIN_RUN_DIR", folder_ / ("h" + std::to_string(host))}}));
    }
    for (auto& launcher : launchers) exit_code_ = std::max(exit_code_, launcher->wait(seconds(120)));
    const Json report = Json::parse_or_null(launchers[0]->out());
    EXPECT_FALSE(report.is_null()) << launchers[0]->out() << launchers[0]->err();
    return report;
  }

  TempDir folder_;
  std::unique_ptr<NetnsLab> lab_;
  int exit_code_ = -1;
};

TEST_F(DoctorOnHosts, NamesTheHostWithHalfTheBandwidthAndNoOther) {
  for (int host = 0; host < 4; ++host)
    std::filesystem::create_directory(folder_ / ("h" + std::to_string(host)));
  for (int host = 0; host < 4; ++host)
    run({"env", "DTRAIN_NETNS_LAB=t" + std::to_string(::getpid()), "bash",
         std::string(DTRAIN_LABS) + "/netns.sh", "limit", "h" + std::to_string(host),
         host == 2 ? "200mbit" : "400mbit"});
  const Json report = examine();
  int links = 0;
  for (const Json outlier : report.at("outliers")) {
    if (outlier.at("metric") != "link") continue;
    ++links;
    EXPECT_EQ(outlier.at("host"), "h2") << report.dump();
  }
  EXPECT_EQ(links, 1) << report.dump();
}

TEST_F(DoctorOnHosts, NamesTheHostWhoseFolderCannotBeWritten) {
  for (const int host : {0, 1, 3}) std::filesystem::create_directory(folder_ / ("h" + std::to_string(host)));
  const Json report = examine();
  for (const Json worker : report.at("workers")) {
    const bool bad = worker.at("bad").dump().find("run directory") != std::string::npos;
    EXPECT_EQ(bad, worker.at("host") == "h2") << worker.dump();
  }
  EXPECT_EQ(exit_code_, 1);
}

}  // namespace
}  // namespace dtrain::test
