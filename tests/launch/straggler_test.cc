// A worker that is slower than the others for long: in the job's log, in `dtrain-launch status`, in the
// metrics and as an event, and again when it is as fast as the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "tests/launch/running.h"
#include "tests/support/json.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Two workers that train until they are asked to end, of which rank 1 is slow while slow() is there.
class Stragglers : public testing::Test {
 protected:
  Stragglers() {
    fs::permissions(runtime_.path(), fs::perms::owner_all);
    write_file(slow(), "");
    std::map<std::string, std::string> environment = this->environment();
    environment["DTRAIN_TEST_SLOW"] = slow().string();
    job_.emplace(std::vector<std::string>{program("dtrain-launch"), "--nproc_per_node=2", "--events",
                                          events_file().string(), DTRAIN_STRAGGLER_TRAINER, "--dataset",
                                          "synthetic:1x6x6,10,4096", "--epochs", "1000000", "--batch-size",
                                          "4", "--eval-every", "0", "--checkpoint-every", "0", "--run-dir",
                                          (folder_ / "run").string()},
                 environment);
  }

  std::map<std::string, std::string> environment() const {
    return {{"XDG_RUNTIME_DIR", runtime_.path().string()}};
  }
  fs::path slow() const { return folder_ / "slow"; }
  fs::path events_file() const { return folder_ / "events.jsonl"; }
  std::string ask(std::vector<std::string> arguments) const {
    RunOptions options = limited_to(seconds(60));
    options.environment = environment();
    arguments.push_back(std::to_string(job_->pid()));
    return launch(arguments, options).out;
  }
  /// Rank 1 in `status --json`; null while it is not there.
  Json second_worker() const {
    static const JsonSchema schema(fs::path(DTRAIN_SOURCE) / "docs/status.schema.json");
    const std::string text = ask({"status", "--json"});
    const Json json = Json::parse_or_null(text);
    if (json.is_null()) return json;
    EXPECT_EQ(schema.complaint(text), "");
    for (const Json& worker : json["workers"]) {
      if (worker["rank"] == 1) return worker;
    }
    return {};
  }
  /// The events of that name about rank 1.
  std::vector<Json> events(const std::string& name) const {
    static const JsonSchema schema(fs::path(DTRAIN_SOURCE) / "docs/events.schema.json");
    std::vector<Json> found;
    if (!fs::exists(events_file())) return found;
    std::istringstream lines(read_file(events_file()));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_EQ(schema.complaint(line), "");
      Json event = Json::parse_or_null(line);
      if (!event.is_null() && event["event"] == name && event["rank"] == 1) found.push_back(std::move(event));
    }
    return found;
  }

  TempDir folder_, runtime_;
  std::optional<Running> job_;
};

TEST_F(Stragglers, AreNamedAndSoIsTheirRecovery) {
  ASSERT_TRUE(eventually([&] { return !events("straggler").empty(); }, seconds(60))) << job_->err();
  const Json event = events("straggler")[0];
  EXPECT_EQ(event["phase"], "compute");
  EXPECT_EQ(event["device"], "CPU");
  EXPECT_GT(event["factor"].number(), 1.3);
  const Json worker = second_worker();
  ASSERT_TRUE(worker.contains("straggler"));
  EXPECT_EQ(worker["straggler"]["phase"], "compute");
  EXPECT_EQ(worker["pid"], event["pid"]);
  EXPECT_THAT(ask({"status"}), HasSubstr("rank 1 (CPU) is a straggler: slow is compute"));
  EXPECT_THAT(job_->err(),
              ContainsRegex("step [0-9]+: rank 1 \\(host [^ ]+, CPUs [0-9,-]+\\) is a straggler"));
  fs::remove(slow());
  ASSERT_TRUE(eventually([&] { return !events("straggler_recovered").empty(); }, seconds(60))) << job_->err();
  EXPECT_FALSE(second_worker().contains("straggler"));
  EXPECT_THAT(job_->err(), ContainsRegex("step [0-9]+: rank 1 \\([^)]*\\) is no straggler any more"));
  EXPECT_EQ(events("straggler").size(), 1U);
  job_->signal(SIGTERM);
  EXPECT_EQ(job_->wait(seconds(60)), 75) << job_->err();
}

}  // namespace
}  // namespace dtrain::test
