// Parameter servers through the programs: the numbers of data parallelism where updates are synchronous,
// staleness where they are not, processes that are killed, and what makes no sense.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "tests/launch/option_test.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"

namespace dtrain::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServersOption : public OptionTest {
 protected:
  TrainingRun training(const std::string& name, int world, int servers, int steps,
                       const std::vector<std::string>& more = {}) {
    TrainingRun run = run_named(
        name, world,
        {"--model=lenet", "--dataset=synthetic:1x28x28,10,512", "--global-batch-size=48", "--optimizer=adamw",
         "--lr=0.002", "--eval-every=1", "--log-every=1", "--max-steps=" + std::to_string(steps)},
        more);
    if (servers > 0) {
      run.start = Start::launcher;
      run.launcher_arguments = {"--servers=" + std::to_string(servers)};
    }
    return run;
  }
  test::Json summary(const std::string& name) const {
    return test::Json::read(folder_ / name / "summary.json");
  }
  std::size_t optimizer_state(const std::string& name) const {
    std::filesystem::path newest;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / name / "checkpoints")) {
      if (entry.is_directory() && entry.path() > newest) newest = entry.path();
    }
    std::ifstream in(newest / "optimizer.safetensors", std::ios::binary);
    EXPECT_TRUE(in) << newest;
    std::ostringstream content;
    content << in.rdbuf();
    return std::hash<std::string>()(content.str());
  }
};

// Losses and weights are in resumed.txt.
TEST_F(ServersOption, HoldTheOptimizersStateOfDataParallelism) {
  expect_trained(training("plain", 2, 0, 6));
  for (const int servers : {1, 2}) {
    expect_trained(training("servers", 2, servers, 6));
    EXPECT_EQ(optimizer_state("servers"), optimizer_state("plain")) << servers;
    std::filesystem::remove_all(folder_ / "servers");
  }
}

TEST_F(ServersOption, AsynchronousTellsHowLateUpdatesWere) {
  const std::vector<std::string> bound = {"--update=async", "--max-staleness=2"};
  expect_trained(training("async", 3, 2, 12, bound));
  const auto staleness = summary("async").at("staleness");
  for (const char* worker : {"0", "1", "2"}) EXPECT_EQ(staleness.at("pushes").at(worker), 12) << worker;
  std::int64_t pushes = 0;
  for (const auto& [ahead, count] : staleness.at("ahead").items()) {
    EXPECT_LE(std::stoi(ahead), 2);
    pushes += count.get<std::int64_t>();
  }
  EXPECT_EQ(pushes, 36);
  std::ifstream metrics(folder_ / "async" / "metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(metrics, line));
  EXPECT_THAT(line, HasSubstr(R"("staleness":)"));
  // It resumes from what was applied of each worker.
  expect_trained(training("async", 3, 1, 20, bound));
  for (const char* worker : {"0", "1", "2"})
    EXPECT_EQ(summary("async").at("staleness").at("pushes").at(worker), 8) << worker;
  EXPECT_LT(losses(folder_ / "async").back(), losses(folder_ / "async").front());
}

/// The processes of a running job, by what DTRAIN_SERVER and RANK say in their environments.
pid_t process_with(const Running& job, const std::string& variable) {
  for (const pid_t pid : job.marked()) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    std::ifstream name("/proc/" + std::to_string(pid) + "/comm");
    std::string program;
    std::getline(name, program);
    if (program != "dtrain") continue;
    for (std::string entry; std::getline(in, entry, '\0');) {
      if (entry == variable) return pid;
    }
  }
  return 0;
}

class ServersKilled : public ServersOption {
 protected:
  std::vector<std::string> command_of(TrainingRun run, const std::vector<std::string>& launcher = {}) const {
    run.launcher_arguments.insert(run.launcher_arguments.end(), launcher.begin(), launcher.end());
    return command(run);
  }
  bool has_step(const std::string& name, int step) const {
    try {
      const auto lines = step_lines(folder_ / name);
      return !lines.empty() && lines.back().step >= step;
    } catch (const std::exception&) {
      return false;  // nothing is there yet
    }
  }
};

TEST_F(ServersKilled, TheOthersGoOnWithoutAnAsynchronousWorker) {
  Running job(command_of(training("lost", 3, 1, 150, {"--update=async", "--max-staleness=4"})));
  ASSERT_TRUE(eventually([&] { return has_step("lost", 5) && process_with(job, "RANK=2") > 0; }))
      << job.err();
  ::kill(process_with(job, "RANK=2"), SIGKILL);
  EXPECT_EQ(job.wait(std::chrono::seconds(90)), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 2 was killed by SIGKILL"));
  EXPECT_EQ(summary("lost").at("steps"), 150);
  const auto pushes = summary("lost").at("staleness").at("pushes");
  EXPECT_EQ(pushes.at("0"), 150);
  EXPECT_EQ(pushes.at("1"), 150);
  EXPECT_LT(pushes.at("2").get<int>(), 150);
}

TEST_F(ServersKilled, AnAsynchronousWorkerComesBack) {
  Running job(command_of(training("back", 3, 1, 100, {"--update=async"}), {"--max-restarts=1"}));
  ASSERT_TRUE(eventually([&] { return has_step("back", 5) && process_with(job, "RANK=1") > 0; }))
      << job.err();
  // The others stand still, or they might be through before it is back.
  const pid_t before = process_with(job, "RANK=1"), first = process_with(job, "RANK=0"),
              last = process_with(job, "RANK=2");
  for (const pid_t other : {first, last}) ::kill(other, SIGSTOP);
  ::kill(before, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const pid_t now = process_with(job, "RANK=1");
    return now > 0 && now != before;
  })) << job.err();
  for (const pid_t other : {first, last}) ::kill(other, SIGCONT);
  EXPECT_EQ(job.wait(std::chrono::seconds(90)), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 1 is started again"));
  // Each of its steps was applied once, those before its end included.
  EXPECT_EQ(summary("back").at("staleness").at("pushes").at("1"), 100);
}

TEST_F(ServersKilled, AServerIsNamedAndTheJobGoesOnExactly) {
  const std::vector<std::string> often = {"--checkpoint-every=20"};
  expect_trained(training("plain", 2, 0, 300, often));
  Running job(command_of(training("killed", 2, 2, 300, often), {"--max-restarts=1"}));
  ASSERT_TRUE(eventually([&] { return has_step("killed", 50) && process_with(job, "DTRAIN_SERVER=1") > 0; }))
      << job.err();
  const auto killed = std::chrono::steady_clock::now();
  ::kill(process_with(job, "DTRAIN_SERVER=1"), SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.err().find("parameter server 1 (") != std::string::npos; }));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(8));  // aim: 1 s
  EXPECT_EQ(job.wait(std::chrono::seconds(90)), 0) << job.err();
  EXPECT_EQ(final_weights(folder_ / "killed"), final_weights(folder_ / "plain"));
}

TEST_F(ServersKilled, NobodyWaitsForASynchronousWorker) {
  Running job(command_of(training("killed", 3, 1, 4000)));
  ASSERT_TRUE(eventually([&] { return has_step("killed", 5) && process_with(job, "RANK=1") > 0; }))
      << job.err();
  ::kill(process_with(job, "RANK=1"), SIGKILL);
  EXPECT_EQ(job.wait(std::chrono::seconds(15)), 128 + SIGKILL) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 1 (host"));
  EXPECT_TRUE(job.marked().empty());
}

// Whom the others have not met yet they cannot do without; they would wait for it until they give up
// connecting. Of asynchronous workers only the first is needed later, too.
TEST_F(ServersKilled, NobodyWaitsForAWorkerThatIsKilledWhileTheyMeet) {
  const std::pair<const char*, int> cases[] = {
      {"--update=async", 0}, {"--update=sync", 0}, {"--update=sync", 1}, {"--update=sync", 2}};
  for (const auto& [update, rank] : cases) {
    const std::string name = "rank " + std::to_string(rank), variable = "RANK=" + std::to_string(rank);
    Running job(command_of(training(name + update, 3, 1, 1'000'000, {update, "--connect-timeout=100"})));
    ASSERT_TRUE(eventually([&] { return process_with(job, variable) > 0; })) << job.err();
    ::kill(process_with(job, variable), SIGKILL);
    EXPECT_EQ(job.wait(std::chrono::seconds(30)), 128 + SIGKILL) << update << ", " << name << job.err();
    EXPECT_THAT(job.err(), HasSubstr(name + " (host"));
    EXPECT_TRUE(job.marked().empty());
  }
}

TEST_F(ServersOption, AreForWorkersThatUseDtrain) {
  const RunResult other = launch({"--servers=1", "/bin/true"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("uses dtrain"));
}

TEST_F(ServersOption, TheLastRanksServeUnderMpirun) {
  if (run({"sh", "-c", "command -v mpirun && mpirun --version | grep -q 'Open MPI'"}).exit_code != 0)
    GTEST_SKIP() << "no Open MPI's mpirun in PATH";
  expect_trained(training("plain", 2, 0, 5));
  TrainingRun four = training("mpi", 4, 0, 5, {"--servers=2"});
  four.start = Start::mpirun;
  expect_trained(four);
  EXPECT_EQ(final_weights(folder_ / "mpi"), final_weights(folder_ / "plain"));
  TrainingRun none = training("none", 2, 0, 5, {"--servers=2"});
  none.start = Start::mpirun;
  expect_run_refused(none, "2 servers among 2 processes");
}

}  // namespace
}  // namespace dtrain::test
