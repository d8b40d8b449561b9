// The status of a job as JSON, as a table and as metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "launcher/control/job_status.h"
#include "launcher/control/open_metrics.h"
#include "runtime/base/error.h"
#include "tests/support/json.h"
#include "tests/support/json_schema.h"

namespace dtrain::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobStatus running_job() {
  JobStatus job;
  job.run_id = "a \"job\"\n\\ of mine";
  job.pid = 4242;
  job.host = "box";
  job.version = "0.1.0";
  job.program = {
      "dtrain",    "train",
      "--model",   "resnet18",
      "--dataset", "folder:/a/very/long/path/to/pictures/that/does/not/fit/into/one/line/of/eighty"};
  job.state = "running";
  job.started_ns = 1'700'000'000'123'000'000;
  job.running = std::chrono::seconds(3725);
  job.nodes = 2;
  job.node_rank = 1;
  job.world_size = 8;
  job.first_rank = 4;
  job.round = 1;
  job.restarts = 1;
  job.max_restarts = 3;
  for (int i = 0; i < 4; ++i) {
    WorkerJobStatus worker{.rank = 4 + i, .local_rank = i, .pid = 5000 + i, .state = ProcessState::reports};
    WorkerStatus& status = worker.reported.emplace();
    status.state = WorkerState::training;
    status.step = 1200;
    status.total_steps = 5000;
    status.epoch = 2;
    status.loss = 0.5;
    status.samples_per_second = 5120.25;
    status.step_seconds = 0.05;
    status.own_seconds = 0.03 + 0.001 * i;
    worker.cpu_seconds = 12.5;
    worker.resident_bytes = std::uint64_t{3} << 30;
    job.workers.push_back(worker);
  }
  job.workers[0].reported->checkpoint_step = 1000;
  job.workers[0].reported->checkpoints = 2;
  job.workers[0].reported->checkpoint_seconds = 0.4;
  return job;
}

JobStatus finished_workers() {
  JobStatus job = running_job();
  job.workers[1].state = ProcessState::failed;
  job.workers[1].exit_code = 139;
  job.workers[2].state = ProcessState::hanging;
  job.workers[3].state = ProcessState::not_started;
  job.workers[3].pid = 0;
  job.workers[3].resident_bytes = 0;
  job.workers[3].reported.reset();
  WorkerJobStatus server{.rank = 8, .local_rank = 4, .server = 0, .pid = 77, .state = ProcessState::reports};
  server.reported.emplace().state = WorkerState::joined;
  job.workers.push_back(server);
  return job;
}

JobStatus waiting_job() {
  JobStatus job;
  job.pid = 1;
  job.host = "box";
  job.program = {"true"};
  return job;
}

TEST(JobStatus, JsonIsAsTheSchemaSays) {
  const test::JsonSchema schema(std::filesystem::path(DTRAIN_SOURCE) / "docs/status.schema.json");
  for (const JobStatus& job : {running_job(), finished_workers(), waiting_job()})
    EXPECT_EQ(schema.complaint(status_json(job)), "");
  const test::Json json = test::Json::parse(status_json(running_job()));
  EXPECT_EQ(json["run_id"], running_job().run_id);
  EXPECT_EQ(json["started"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["slowest_rank"], 7);
  EXPECT_EQ(json["checkpoint"]["step"], 1000);
  EXPECT_EQ(json["workers"][3]["resident_bytes"], 3221225472);
  // What is not known is not there.
  JobStatus job = running_job();
  job.workers[0].reported->loss = std::nan("");
  EXPECT_FALSE(test::Json::parse(status_json(job)).contains("loss"));
  EXPECT_EQ(schema.complaint(status_json(job)), "");
}

TEST(JobStatus, AStragglerIsNamedWithItsPhaseAndDevice) {
  JobStatus job = running_job();
  for (WorkerJobStatus& worker : job.workers) worker.device = "GPU " + std::to_string(worker.local_rank);
  job.workers[2].reported->slowness = {StragglerPhase::data, 1.4567};
  const test::JsonSchema schema(std::filesystem::path(DTRAIN_SOURCE) / "docs/status.schema.json");
  EXPECT_EQ(schema.complaint(status_json(job)), "");
  const test::Json workers = test::Json::parse(status_json(job))["workers"];
  EXPECT_FALSE(workers[1].contains("straggler"));
  EXPECT_EQ(workers[2]["straggler"]["phase"], "data");
  EXPECT_EQ(workers[2]["straggler"]["factor"], 1.4567);
  const std::string text = status_text(status_json(job));
  EXPECT_THAT(text, HasSubstr("rank 6 (GPU 2) is a straggler: slow is data,\n"
                              "  its part of a step takes 1.46 times the others'\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank 5 (")));
  const std::string metrics = open_metrics(job);
  const auto labels = [](int rank, const char* phase) {
    return "dtrain_worker_straggler{rank=\"" + std::to_string(rank) + "\",host=\"box\",device=\"GPU " +
           std::to_string(rank - 4) + "\",phase=\"" + phase + "\"} ";
  };
  EXPECT_THAT(metrics, HasSubstr(labels(6, "data") + "1\n"));
  EXPECT_THAT(metrics, HasSubstr(labels(6, "compute") + "0\n"));
  EXPECT_THAT(metrics, HasSubstr(labels(5, "data") + "0\n"));
}

TEST(JobStatus, TheTableHasEightyColumns) {
  for (const JobStatus& job : {running_job(), finished_workers(), waiting_job()}) {
    std::istringstream lines(status_text(status_json(job)));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 82U) << line;  // … has 3 bytes
  }
  const std::string text = status_text(status_json(finished_workers()));
  EXPECT_THAT(text, HasSubstr("running for 1 h 2 min"));
  EXPECT_THAT(text, HasSubstr("node 1 of 2, 8 workers, restarts 1 of 3"));
  EXPECT_THAT(text, HasSubstr("step 1200 of 5000, epoch 3, loss 0.5, 50 ms a step, 5120 samples/s,\n"
                              "  checkpoint of step 1000 (took 400 ms)\n"));
  EXPECT_THAT(text, HasSubstr("        4     5000  training          1200        50        30     3 GiB\n"));
  EXPECT_THAT(text, HasSubstr("failed (139)"));
  EXPECT_THAT(
      text, HasSubstr("        6     5002  hanging           1200        50        32     3 GiB slowest\n"));
  EXPECT_THAT(text, HasSubstr("        7        -  not started          -         -         -       0 B\n"));
  EXPECT_THAT(text, HasSubstr(" server 0       77  joined               -         -"));
  EXPECT_THAT(text, Not(HasSubstr("\n of mine")));  // the job's name moves no cursor
  EXPECT_THAT(status_text(status_json(waiting_job())),
              HasSubstr("job (not begun) (launcher 1 on box), waiting"));
  EXPECT_THROW(status_text(R"({"schema": 99})"), DataError);
  EXPECT_THROW(status_text("x"), DataError);
  const std::string jobs = jobs_text({status_json(running_job()), status_json(waiting_job())});
  EXPECT_THAT(jobs, HasSubstr("(not begun)                   1  waiting        0         -  true\n"));
}

// The text of OpenMetrics 1.0, line by line: what its grammar says and no more.
void check_open_metrics(const std::string& text) {
  ASSERT_TRUE(text.ends_with("# EOF\n"));
  const std::regex meta("# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)");
  const std::regex sample(
      R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\[\\"n])*"(,[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\[\\"n])*")*\})? ([+-]?[0-9.]+(e[+-]?[0-9]+)?|NaN|[+-]Inf))");
  std::set<std::string> families, samples;
  std::string family, type, unit;
  std::istringstream lines(text.substr(0, text.size() - 6));
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, meta)) {
      if (match[1] == "TYPE") {
        family = match[2];
        type = match[3];
        unit.clear();
        EXPECT_TRUE(families.insert(family).second) << line << " is not in one piece";
        EXPECT_TRUE(type == "gauge" || type == "counter" || type == "info") << line;
      }
      EXPECT_EQ(match[2], family) << line;
      if (match[1] == "UNIT") {
        EXPECT_TRUE(family.ends_with("_" + match[3].str())) << line;
      }
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1], family + (type == "counter" ? "_total" : type == "info" ? "_info" : "")) << line;
    EXPECT_TRUE(samples.insert(match[1].str() + match[2].str()).second) << line << " is there twice";
  }
}

TEST(OpenMetrics, AreAsTheStandardSays) {
  JobStatus infinite = running_job();
  infinite.workers[0].reported->loss = std::numeric_limits<double>::infinity();
  for (const JobStatus& job : {running_job(), finished_workers(), waiting_job(), infinite})
    check_open_metrics(open_metrics(job));
  const std::string text = open_metrics(finished_workers());
  EXPECT_THAT(text, HasSubstr("# TYPE dtrain_step gauge\n# HELP dtrain_step Last finished training step.\n"
                              "dtrain_step 1200\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_loss 0.5\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_samples_per_second 5120.25\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_restarts_total 1\n"));
  EXPECT_THAT(text, HasSubstr(R"(run_id="a \"job\"\n\\ of mine")"));
  EXPECT_THAT(text, HasSubstr("dtrain_workers{state=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_workers{state=\"evaluating\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("# UNIT dtrain_worker_resident_memory_bytes bytes\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_worker_resident_memory_bytes{rank=\"4\"} 3221225472\n"));
  EXPECT_THAT(text, HasSubstr("dtrain_checkpoint_duration_seconds 0.4\n"));
  EXPECT_THAT(open_metrics(infinite), HasSubstr("dtrain_loss +Inf\n"));
}

}  // namespace
}  // namespace dtrain::launcher
