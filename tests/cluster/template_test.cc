// The sbatch templates: a job that is told to go saves a checkpoint, is requeued, and ends with the very
// weights of a run that nobody disturbed.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/options.h"
#include "tests/cluster/slurm_fixture.h"

namespace dtrain::test {
namespace {

struct Case {
  const char* name = "";
  const char* script = "";
  std::vector<std::string> resources;
  std::vector<std::string> scancel;  ///< how the job is told to go
};

// For the names of tests.
void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

/// Jobs that train by a template.
class Training : public SlurmTest {
 protected:
  // 16 steps an epoch; in the middle of one when the signal comes, most likely.
  std::vector<std::string> recipe() const {
    return {"--model",      "lenet", "--data-dir",   (folder_ / "data").string(),
            "--batch-size", "8",     "--epochs",     "10",
            "--log-every",  "1",     "--eval-every", "0",
            "--momentum",   "0.9",   "--lr",         "0.01"};
  }
  std::size_t steps_done() const {
    const auto path = folder_ / "run" / "metrics.jsonl";
    if (!std::filesystem::exists(path)) return 0;
    const std::string text = read_file(path);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::string submit(const std::string& script, const std::vector<std::string>& resources,
                     const std::map<std::string, std::string>& settings = {}) const {
    std::vector<std::string> argv = {"sbatch", "--parsable", "--output=" + (folder_ / "log").string()};
    argv.insert(argv.end(), resources.begin(), resources.end());
    argv.push_back(std::string(DTRAIN_CLUSTER) + "/slurm/" + script);
    for (const std::string& argument : recipe()) argv.push_back(argument);
    RunOptions options;
    options.environment = {{"DTRAIN_RUN_DIR", (folder_ / "run").string()},
                           {"DTRAIN_NPROC_PER_NODE", "2"},
                           {"OMP_NUM_THREADS", "1"}};
    options.environment.insert(settings.begin(), settings.end());
    const RunResult result = lab_->run(argv, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(0, result.out.find('\n'));
  }
  // Waits until the job has left the queue for good.
  bool wait_for(const std::string& job) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(90));
    while (!deadline.expired()) {
      if (lab_->run({"squeue", "--noheader", "--jobs=" + job, "--states=PENDING,RUNNING,COMPLETING"})
              .out.empty())
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return false;
  }
  void wait_for_steps(std::size_t steps) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (steps_done() < steps && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // All steps, with the losses and the weights of a run on one node that nobody disturbed.
  void expect_undisturbed(const std::string& log) const {
    const TrainingRun undisturbed{.start = Start::launcher,
                                  .world = 4,
                                  .launcher_arguments = {},
                                  .arguments = recipe(),
                                  .run_dir = folder_ / "undisturbed",
                                  .options = one_thread()};
    const RunResult expected = train(undisturbed);
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    EXPECT_EQ(losses(folder_ / "run").size(), 160U) << log;
    EXPECT_EQ(losses(folder_ / "run"), losses(folder_ / "undisturbed"));
    EXPECT_EQ(final_weights(folder_ / "run"), final_weights(folder_ / "undisturbed"));
  }
};

class Template : public Training, public ::testing::WithParamInterface<Case> {};

TEST_P(Template, APreemptedJobEndsWithTheWeightsOfAnUndisturbedOne) {
  const std::string job = submit(GetParam().script, GetParam().resources);
  wait_for_steps(20);
  std::vector<std::string> scancel = {"scancel"};
  scancel.insert(scancel.end(), GetParam().scancel.begin(), GetParam().scancel.end());
  scancel.push_back(job);
  ASSERT_EQ(lab_->run(scancel).exit_code, 0);
  ASSERT_TRUE(wait_for(job)) << read_file(folder_ / "log");
  const std::string log = read_file(folder_ / "log");
  EXPECT_NE(log.find("requeued after restart 0"), std::string::npos) << log;
  EXPECT_NE(log.find("restart 1, run"), std::string::npos) << log;
  EXPECT_NE(log.find("resuming from step"), std::string::npos) << log;
  expect_undisturbed(log);
}

// On three nodes, of which one waits.
class Spare : public Training {
 protected:
  static void SetUpTestSuite() { start_lab(3, 4); }

  // As when its power fails.
  void kill_all_on(const std::string& node) const {
    const std::string marks[] = {"DTRAIN_RUN_DIR=" + (folder_ / "run").string(), "SLURM_NODEID=" + node};
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto pid = parse_integer(entry.path().filename().string());
      if (!pid) continue;
      std::ifstream in(entry.path() / "environ");
      std::set<std::string> variables;
      for (std::string variable; std::getline(in, variable, '\0');) variables.insert(variable);
      if (std::all_of(std::begin(marks), std::end(marks),
                      [&](auto& mark) { return variables.contains(mark); }))
        ::kill(static_cast<pid_t>(*pid), SIGKILL);
    }
  }
};

TEST_F(Spare, TakesTheLostNodesPlaceAndTheJobIsNotStartedAgain) {
  const std::string job = submit("launcher_per_node.sbatch", {"-N3", "-n3", "-c2"}, {{"DTRAIN_SPARES", "1"}});
  wait_for_steps(20);
  kill_all_on("1");
  ASSERT_TRUE(wait_for(job)) << read_file(folder_ / "log");
  const std::string log = read_file(folder_ / "log");
  EXPECT_NE(log.find("finished without the nodes that were lost"), std::string::npos) << log;
  EXPECT_EQ(log.find("requeued"), std::string::npos) << log;
  expect_undisturbed(log);
}

// A launcher that says what it is told to: that a node was lost (4), so many times.
class LostNode : public SlurmTest {
 protected:
  std::string log_of_job(int losses, int max_requeues) const {
    write_file(folder_ / "dtrain-launch", "#!/bin/sh\n[ ${SLURM_RESTART_COUNT:-0} -ge " +
                                              std::to_string(losses) + " ] && exit 0\nexit 4\n");
    std::filesystem::permissions(folder_ / "dtrain-launch", std::filesystem::perms::owner_all);
    RunOptions options = limited_to(std::chrono::seconds(60));
    options.environment = {{"DTRAIN_RUN_DIR", (folder_ / "run").string()},
                           {"DTRAIN_BIN", folder_.path()},
                           {"DTRAIN_MAX_REQUEUES", std::to_string(max_requeues)}};
    const RunResult result =
        lab_->run({"sbatch", "--wait", "-N2", "-n2", "-c1", "--output=" + (folder_ / "log").string(),
                   std::string(DTRAIN_CLUSTER) + "/slurm/launcher_per_node.sbatch"},
                  options);
    return read_file(folder_ / "log") + "sbatch: " + std::to_string(result.exit_code) + "\n";
  }
};

TEST_F(LostNode, RequeuesTheJob) {
  const std::string log = log_of_job(1, 10);
  EXPECT_NE(log.find("requeued after restart 0 (exit code 4)"), std::string::npos) << log;
  EXPECT_NE(log.find("restart 1, run"), std::string::npos) << log;
  EXPECT_NE(log.find("sbatch: 0\n"), std::string::npos) << log;
}

TEST_F(LostNode, IsNotRequeuedForEver) {
  const std::string log = log_of_job(100, 1);
  EXPECT_NE(log.find("restart 1, run"), std::string::npos) << log;
  EXPECT_EQ(log.find("restart 2, run"), std::string::npos) << log;
  EXPECT_NE(log.find("sbatch: 4\n"), std::string::npos) << log;
}

const Case kCases[] = {
    {"TaskPerGpuSignalledSteps", "task_per_gpu.sbatch", {"-N2", "-n4"}, {"--signal=USR2"}},
    {"TaskPerGpuSignalledScript", "task_per_gpu.sbatch", {"-N2", "-n4"}, {"--signal=USR2", "--batch"}},
    {"LauncherPerNodeSignalledSteps", "launcher_per_node.sbatch", {"-N2", "-n2", "-c2"}, {"--signal=USR2"}},
};
INSTANTIATE_TEST_SUITE_P(Sbatch, Template, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace dtrain::test
