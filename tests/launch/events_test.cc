// --events: what happens to a job, as lines of JSON. Every line is checked against the documented schema.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/fd.h"
#include "tests/launch/nodes.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"
#include "tests/support/json_schema.h"
#include "tests/support/process.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

/// The events in `text`, each of which is as the schema says, but for one that is being written.
std::vector<Json> events_in(const std::string& text) {
  static const JsonSchema schema(fs::path(DTRAIN_SOURCE) / "docs/events.schema.json");
  std::vector<Json> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    if (line.empty()) continue;
    EXPECT_EQ(schema.complaint(line), "");
    events.push_back(Json::parse_or_null(line));
  }
  return events;
}

std::vector<Json> events_of(const fs::path& file) {
  return fs::exists(file) ? events_in(read_file(file)) : std::vector<Json>();
}

std::vector<std::string> names_of(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event.at("event").text());
  return names;
}

std::vector<Json> named(const std::vector<Json>& events, const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : events) {
    if (event.at("event") == name) found.push_back(event);
  }
  return found;
}

class Events : public testing::Test {
 protected:
  std::string file() const { return (folder_ / "events.jsonl").string(); }
  std::vector<Json> events() const { return events_of(folder_ / "events.jsonl"); }

  TempDir folder_;
};

TEST_F(Events, OfAJobThatEndsWell) {
  EXPECT_EQ(launch({"--events", file(), "--rdzv-id=mine", "--nproc_per_node=2", "true"}).exit_code, 0);
  const std::vector<Json> all = events();
  EXPECT_THAT(names_of(all), UnorderedElementsAre("start", "worker_start", "worker_start", "worker_exit",
                                                  "worker_exit", "end"));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front()["event"], "start");
  EXPECT_EQ(all.front()["world_size"], 2);
  EXPECT_EQ(all.front()["program"].dump(), R"(["true"])");
  EXPECT_EQ(all.back()["event"], "end");
  EXPECT_EQ(all.back()["exit_code"], 0);
  for (const Json& event : all) EXPECT_EQ(event["run_id"], "mine");
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1]["time"].text(), all[i]["time"].text());
  // The pid of the end is the one of the start.
  for (const Json& start : named(all, "worker_start")) {
    for (const Json& exit : named(all, "worker_exit")) {
      if (exit["rank"] == start["rank"]) {
        EXPECT_EQ(exit["pid"], start["pid"]);
      }
    }
  }
}

TEST_F(Events, OfAWorkerThatIsKilledAndTheRestart) {
  const RunResult result = launch(
      {"--events", file(), "--nproc_per_node=2", "--max-restarts=1", "--log-dir", (folder_ / "logs").string(),
       "sh", "-c",
       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && { echo why >&2; kill -SEGV $$; "
       "}; sleep 60"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> all = events();
  ASSERT_EQ(named(all, "failure").size(), 1U) << read_file(file());
  const Json failure = named(all, "failure")[0];
  EXPECT_EQ(failure["kind"], "worker");
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["exit_code"], 128 + SIGSEGV);
  EXPECT_EQ(failure["signal"], "SIGSEGV");
  EXPECT_THAT(failure["message"].text(), HasSubstr("failed first: killed by SIGSEGV"));
  EXPECT_THAT(failure["details"].dump(), HasSubstr("why"));
  EXPECT_THAT(failure["log_file"].text(), HasSubstr("attempt_0/1/stderr.log"));
  EXPECT_EQ(read_file(failure["log_file"].text()), "why\n");
  const std::vector<Json> exits = named(all, "worker_exit");
  const auto killed = std::find_if(exits.begin(), exits.end(),
                                   [](const Json& exit) { return exit["rank"] == 1 && exit["round"] == 0; });
  ASSERT_NE(killed, exits.end());
  EXPECT_EQ(failure["pid"], (*killed)["pid"]);
  ASSERT_EQ(named(all, "restart").size(), 1U);
  EXPECT_EQ(named(all, "restart")[0]["restart"], 1);
  ASSERT_EQ(named(all, "start").size(), 2U);
  EXPECT_EQ(named(all, "start")[1]["round"], 1);
  EXPECT_EQ(named(all, "start")[1]["restart"], 1);
}

TEST_F(Events, WorkersThatUseDtrainAreReadyWhenAllHaveMet) {
  const RunResult result =
      launch({"--events", file(), "--nproc_per_node=2", "dtrain", "train", "--model", "mlp", "--dataset",
              "synthetic:1x4x4,4,64", "--max-steps", "2", "--run-dir", (folder_ / "run").string()},
             limited_to(seconds(60)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> ready = named(events(), "ready");
  ASSERT_EQ(ready.size(), 1U) << read_file(file());
  EXPECT_LT(ready[0]["seconds"].number(), 60);
}

TEST_F(Events, OfAJobThatIsAskedToEnd) {
  Running job({program("dtrain-launch"), "--events", file(), "--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return !named(events(), "worker_start").empty(); }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  const std::vector<Json> all = events();
  ASSERT_EQ(named(all, "signal").size(), 1U);
  EXPECT_EQ(named(all, "signal")[0]["signal"], "SIGTERM");
  EXPECT_EQ(all.back()["exit_code"], 128 + SIGTERM);
  EXPECT_TRUE(named(all, "failure").empty());
}

TEST_F(Events, EveryNodeTellsOfAFailureOnAny) {
  Nodes nodes(0, {}, "2");
  for (int node = 0; node < 2; ++node) {
    nodes.add(node,
              {"--events", (folder_ / std::to_string(node)).string(), "--nproc_per_node=1", "sh", "-c",
               "[ $RANK = 1 ] && exit 7; sleep 60"},
              "2");
  }
  for (int node = 0; node < 2; ++node) EXPECT_EQ(nodes[node].wait(), 7) << nodes.errors();
  for (int node = 0; node < 2; ++node) {
    const std::vector<Json> all = events_of(folder_ / std::to_string(node));
    ASSERT_EQ(named(all, "failure").size(), 1U) << node;
    const Json failure = named(all, "failure")[0];
    EXPECT_EQ(failure["node_rank"], node);
    EXPECT_EQ(failure["rank"], 1);
    EXPECT_EQ(failure["exit_code"], 7);
    EXPECT_EQ(failure.contains("pid"), node == 1);
    EXPECT_EQ(all.back()["event"], "end");
    EXPECT_EQ(all.back()["exit_code"], 7);
  }
}

TEST_F(Events, KillingTheLauncherLosesNothingThatHasHappened) {
  Running job({program("dtrain-launch"), "--events", file(), "--nproc_per_node=2", "sh", "-c",
               "sleep 0.5; echo running; sleep 600"});
  ASSERT_TRUE(eventually([&] { return job.out().find("running\nrunning") != std::string::npos; }));
  job.signal(SIGKILL);
  job.wait();
  EXPECT_THAT(names_of(events()), ElementsAre("start", "worker_start", "worker_start"));
  EXPECT_TRUE(read_file(file()).ends_with("}\n"));
}

TEST_F(Events, GoToAFileOfTheFolderTheLauncherIsIn) {
  const RunResult result = run({"sh", "-c", "cd \"$0\" && exec \"$@\"", folder_.path().string(),
                                program("dtrain-launch"), "--events=here.jsonl", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_file(folder_ / "here.jsonl"), HasSubstr("\"exit_code\""));
}

TEST_F(Events, GoToADescriptorWhichNoWorkerHas) {
  const std::string list = "ls /proc/self/fd | wc -l";
  const RunResult without =
      run({"sh", "-c", program("dtrain-launch") + " --nproc_per_node=1 sh -c '" + list + "'"});
  const RunResult with =
      run({"sh", "-c",
           program("dtrain-launch") + " --events 7 --nproc_per_node=1 sh -c '" + list + "' 7>" + file()});
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(names_of(events()).back(), "end");
}

TEST_F(Events, AFullDiskEndsNoJob) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full here";
  const RunResult result = launch({"--events", "/dev/full", "--nproc_per_node=1", "true"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--events /dev/full"));
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
}

TEST_F(Events, AReaderThatHasGoneOrDoesNotReadEndsNoJob) {
  const std::string script = program("dtrain-launch") + " --events 7 --nproc_per_node=1 true; echo code $?";
  // Nobody reads: `true` ends at once. Somebody holds the pipe open and reads nothing: it is full already.
  const RunResult gone =
      run({"bash", "-c", "set +m; { { sleep 0.3; " + script + "; } 7>&1 >&3 | true; } 3>&1"});
  EXPECT_THAT(gone.out, HasSubstr("code 0")) << gone.err;
  const std::string fifo = (folder_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd held(::open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string page(4096, 'x');
  while (::write(held.get(), page.data(), page.size()) > 0) {
  }
  for (const std::string& to : {fifo, std::string("7")}) {
    const RunResult full = run({"sh", "-c",
                                program("dtrain-launch") + " --events " + to + " --nproc_per_node=1 true 7>" +
                                    fifo + "; echo code $?"});
    EXPECT_THAT(full.out, HasSubstr("code 0")) << to << full.err;
  }
}

TEST_F(Events, WhatIsNoPlaceForThemIsRefused) {
  EXPECT_THAT(launch({"--events=77", "true"}).err,
              HasSubstr("--events: expected a file, or the number of a descriptor that is open for writing, "
                        "got 77, which is not open; a file of that name is ./77"));
  EXPECT_EQ(launch({"--events=/proc/nothing/events", "true"}).exit_code, 6);
}

}  // namespace
}  // namespace dtrain::test
