// `dtrain-launch status`, `stop`, `save` and `stacks` of jobs that run, and their metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include <filesystem>
#include <fstream>

#include "cluster/net/endpoint.h"
#include "runtime/base/fd.h"
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
using ::testing::IsEmpty;
using ::testing::Not;

/// Jobs that are found in a folder of the test's own, as those of a session.
class Control : public testing::Test {
 protected:
  Control() { fs::permissions(runtime_.path(), fs::perms::owner_all); }

  std::map<std::string, std::string> environment() const {
    return {{"XDG_RUNTIME_DIR", runtime_.path().string()}};
  }
  RunOptions options() const {
    RunOptions options = limited_to(seconds(100));
    options.environment = environment();
    return options;
  }
  std::unique_ptr<Running> start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("dtrain-launch"));
    return std::make_unique<Running>(arguments, environment());
  }
  RunResult ask(const std::vector<std::string>& arguments) const { return launch(arguments, options()); }
  /// Where no other job of this user can be seen, and whether that can be had here.
  RunResult ask_alone(const std::string& command) const {
    return run({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                "for folder in /tmp/dtrain-$(id -u) /run/user/$(id -u)/dtrain; do"
                "  [ ! -d $folder ] || mount -t tmpfs none $folder || exit 99; done; exec \"$@\"",
                "sh", program("dtrain-launch"), command},
               options());
  }
  static bool can_be_alone() { return run({"/usr/bin/unshare", "--mount", "true"}).exit_code == 0; }
  RunResult ask(const std::string& command, const Running& job) const {
    return ask({command, std::to_string(job.pid())});
  }
  /// As the schema says it; null while the job is not there.
  Json status(const Running& job) const {
    static const JsonSchema schema(fs::path(DTRAIN_SOURCE) / "docs/status.schema.json");
    const RunResult result = ask({"status", "--json", std::to_string(job.pid())});
    if (result.exit_code != 0) return {};
    EXPECT_EQ(schema.complaint(result.out), "");
    return Json::parse(result.out);
  }
  bool has_state(const Running& job, int rank, const std::string& state) const {
    const Json json = status(job);
    if (json.is_null()) return false;
    for (const Json& worker : json["workers"]) {
      if (worker["rank"] == rank) return worker["state"] == state;
    }
    return false;
  }
  std::vector<fs::path> sockets() const {
    std::vector<fs::path> found;
    if (!fs::exists(runtime_ / "dtrain")) return found;
    for (const auto& entry : fs::directory_iterator(runtime_ / "dtrain")) found.push_back(entry.path());
    return found;
  }
  /// A run that ends only when it is asked to, or fails. `before`: what starts dtrain.
  std::vector<std::string> endless_training(std::vector<std::string> options = {},
                                            const std::vector<std::string>& before = {"dtrain"}) const {
    options.push_back("--nproc_per_node=2");
    options.insert(options.end(), before.begin(), before.end());
    options.insert(options.end(), {"train", "--model", "mlp", "--dataset", "synthetic:1x8x8,10,4096",
                                   "--epochs", "1000000", "--batch-size", "16", "--eval-every", "0",
                                   "--checkpoint-every", "0", "--run-dir", (folder_ / "run").string()});
    return options;
  }

  TempDir folder_, runtime_;
};

TEST_F(Control, AnyProgramHasItsPidsAndStatesAndMemory) {
  const auto job = start({"--rdzv-id=mine", "--nproc_per_node=3", "sh", "-c",
                          "[ $RANK = 0 ] && exit 0; [ $RANK = 1 ] && kill -STOP $$; exec sleep 600"});
  ASSERT_TRUE(eventually([&] { return has_state(*job, 0, "exited") && has_state(*job, 1, "stopped"); }));
  const Json json = status(*job);
  EXPECT_EQ(json["run_id"], "mine");
  EXPECT_EQ(json["pid"], job->pid());
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["world_size"], 3);
  EXPECT_EQ(json["workers"][2]["state"], "running");
  EXPECT_GT(json["workers"][2]["resident_bytes"].integer(), 100'000);
  EXPECT_FALSE(json.contains("step"));
  const RunResult table = can_be_alone() ? ask_alone("status") : ask("status", *job);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("job mine \\(launcher [0-9]+ on [^ ]+\\), running for"));
  EXPECT_THAT(table.out, ContainsRegex("\n +1 +[0-9]+  stopped"));
  EXPECT_EQ(ask({"status", "mine"}).exit_code, 0);
}

TEST_F(Control, TrainingHasItsStepsItsRateAndItsSlowestRank) {
  const auto job = start(endless_training());
  Json json;
  ASSERT_TRUE(eventually(
      [&] {
        json = status(*job);
        return !json.is_null() && json.contains("slowest_rank") && json["step"].integer() > 20;
      },
      seconds(60)))
      << job->err();
  EXPECT_EQ(json["workers"][0]["state"], "training");
  EXPECT_EQ(json["workers"][1]["state"], "training");
  EXPECT_GT(json["samples_per_second"].number(), 0);
  EXPECT_GT(json["loss"].number(), 0);
  EXPECT_LT(json["workers"][0]["own_seconds"].number(), json["step_seconds"].number() * 1.5);
  const std::int64_t step = json["step"];
  EXPECT_TRUE(eventually([&] { return status(*job)["step"].integer() > step; }));
}

// The launcher does not know what the shell starts.
TEST_F(Control, TrainingBehindAShellHasItsSteps) {
  const auto job = start(endless_training({}, {"sh", "-c", "exec \"$0\" \"$@\"", program("dtrain")}));
  EXPECT_TRUE(eventually(
      [&] {
        const Json json = status(*job);
        return !json.is_null() && json.contains("step") && json["step"].integer() > 20 &&
               json["workers"][0]["state"] == "training" && json["workers"][1]["state"] == "training";
      },
      seconds(60)))
      << job->err();
}

TEST_F(Control, SaveWritesACheckpointAndTrainingContinues) {
  const auto job = start(endless_training());
  ASSERT_TRUE(eventually([&] { return has_state(*job, 1, "training"); }, seconds(60))) << job->err();
  ASSERT_FALSE(status(*job).contains("checkpoint"));
  std::int64_t saved = 0;
  for (int time = 1; time <= 2; ++time) {
    const RunResult result = ask("save", *job);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("asked for a checkpoint"));
    ASSERT_TRUE(eventually([&] {
      const Json json = status(*job);
      return json.contains("checkpoint") && json["checkpoint"]["count"] == time;
    })) << job->err();
    const Json checkpoint = status(*job)["checkpoint"];
    EXPECT_GT(checkpoint["step"].integer(), saved);
    EXPECT_GT(checkpoint["seconds"].number(), 0);
    saved = checkpoint["step"];
    bool found = false;
    for (const auto& entry : fs::directory_iterator(folder_ / "run" / "checkpoints"))
      found = found || entry.path().filename().string().find(std::to_string(saved)) != std::string::npos;
    EXPECT_TRUE(found) << saved;
  }
  EXPECT_TRUE(eventually([&] { return status(*job)["step"].integer() > saved; }));
}

TEST_F(Control, StopEndsTheJobAsSigtermDoes) {
  const auto job = start(endless_training());
  ASSERT_TRUE(eventually([&] { return has_state(*job, 1, "training"); }, seconds(60))) << job->err();
  const RunResult result = ask("stop", *job);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(job->wait(seconds(60)), 75) << job->err();
  EXPECT_THAT(job->err(), HasSubstr("got SIGTERM"));
  EXPECT_FALSE(fs::is_empty(folder_ / "run" / "checkpoints"));
  EXPECT_THAT(sockets(), IsEmpty());
}

TEST_F(Control, StacksSaysWhatEachWorkerIsDoing) {
  for (const char* on_hang : {"report", "none"}) {
    const auto job = start({std::string("--on-hang=") + on_hang, "--nproc_per_node=2", "sleep", "600"});
    ASSERT_TRUE(eventually([&] { return has_state(*job, 1, "running"); })) << job->err();
    const RunResult result = ask("stacks", *job);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("what the workers here are doing:"));
    EXPECT_THAT(result.out, ContainsRegex("rank 0 \\(pid [0-9]+\\): running, .*sleeping in clock_nanosleep"));
    EXPECT_THAT(result.out, ContainsRegex("rank 1, threads as the kernel sees them:"));
    EXPECT_EQ(job->err(), "");  // who asks gets the answer, not the job's log
  }
}

TEST_F(Control, SeveralJobsAreListedAndToldApart) {
  EXPECT_EQ(ask({"status", "first"}).exit_code, 2);
  if (can_be_alone()) {
    const RunResult none = ask_alone("status");
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(none.err, HasSubstr("status: expected a running job of user"));
  }
  const auto first = start({"--rdzv-id=first", "--nproc_per_node=1", "sleep", "600"});
  const auto second = start({"--rdzv-id=second", "--nproc_per_node=2", "sleep", "600"});
  ASSERT_TRUE(
      eventually([&] { return has_state(*first, 0, "running") && has_state(*second, 1, "running"); }));
  const RunResult list = ask({"status"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, ContainsRegex("first +[0-9]+  running +1 +-  sleep 600"));
  EXPECT_THAT(list.out, ContainsRegex("second +[0-9]+  running +2 +-  sleep 600"));
  const RunResult stop = ask({"stop"});
  EXPECT_EQ(stop.exit_code, 2);
  EXPECT_THAT(stop.err, HasSubstr("stop: expected a job's id or its launcher's pid, since several run:"));
  EXPECT_THAT(ask({"stop", "third"}).err, HasSubstr("got third; these run:"));
  EXPECT_EQ(ask({"stop", "first"}).exit_code, 0);
  EXPECT_EQ(first->wait(), 128 + SIGTERM);
  EXPECT_THAT(ask({"status", "second"}).out, HasSubstr("job second"));
}

TEST_F(Control, TheSocketIsThisUsersAloneAndGoesWithTheJob) {
  auto job = start({"--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return has_state(*job, 0, "running"); }));
  ASSERT_EQ(sockets().size(), 1U);
  EXPECT_EQ(fs::status(sockets()[0]).permissions(), fs::perms(0600));
  EXPECT_EQ(fs::status(runtime_ / "dtrain").permissions(), fs::perms(0700));
  job->signal(SIGKILL);
  job->wait();
  EXPECT_EQ(sockets().size(), 1U);  // nobody was left to remove it
  EXPECT_EQ(ask("status", *job).exit_code, 2);
  EXPECT_THAT(sockets(), IsEmpty());
}

TEST_F(Control, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto job = start({"--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return has_state(*job, 0, "running"); }));
  // As if the folder let others in.
  const fs::path socket = sockets().at(0);
  fs::permissions(runtime_.path(), fs::perms(0711));
  fs::permissions(runtime_ / "dtrain", fs::perms(0711));
  fs::permissions(socket, fs::perms(0666));
  const std::vector<int> codes = run_ranks(1, [&](int) {
    if (::setuid(65534) != 0) throw std::runtime_error("setuid");
    const UniqueFd asking(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::strcpy(address.sun_path, socket.c_str());
    if (::connect(asking.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect: " + std::string(std::strerror(errno)));
    ::send(asking.get(), "POST /stop HTTP/1.1\r\n\r\n", 23, MSG_NOSIGNAL);
    char answer[512] = "";
    ::recv(asking.get(), answer, sizeof answer - 1, MSG_WAITALL);
    if (!std::string_view(answer).starts_with("HTTP/1.1 403 ")) throw std::runtime_error(answer);
  });
  EXPECT_EQ(codes, std::vector<int>{0});
  EXPECT_TRUE(has_state(*job, 0, "running"));
  EXPECT_EQ(job->err(), "");
}

TEST_F(Control, AStoppedLauncherIsNamed) {
  const auto job = start({"--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return has_state(*job, 0, "running"); }));
  job->signal(SIGSTOP);
  const RunResult result = ask("status", *job);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err,
              ContainsRegex("the launcher \\(pid [0-9]+\\) does not answer: it is stopped or stuck"));
  job->signal(SIGCONT);
}

TEST_F(Control, ProgramsOfTheseNamesCanStillBeStarted) {
  std::ofstream(folder_ / "status") << "#!/bin/sh\necho mine $1\n";
  fs::permissions(folder_ / "status", fs::perms::owner_all);
  RunOptions options;
  options.environment["PATH"] = folder_.path().string() + ":" + std::getenv("PATH");
  EXPECT_EQ(launch({"--nproc_per_node=1", "status", "x"}, options).out, "mine x\n");
  EXPECT_THAT(ask({"save", "--help"}).out, HasSubstr("usage: dtrain-launch save [OPTIONS] [JOB]"));
}

// ---- metrics

/// What a GET of `path` brings from 127.0.0.1:`port`, headers included; empty where nobody listens.
std::string got(int port, const std::string& path) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address =
      resolve({"127.0.0.1", static_cast<std::uint16_t>(port)}, Deadline::after(seconds(5))).front();
  if (::connect(socket.get(), address.get(), address.length()) != 0) return "";
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n";
  ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string text;
  char bytes[4096];
  for (ssize_t more; (more = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    text.append(bytes, static_cast<std::size_t>(more));
  return text;
}

TEST_F(Control, MetricsAreServedWhileTheJobRuns) {
  const int port = free_port();
  const auto job = start(endless_training({"--metrics-listen", "127.0.0.1:" + std::to_string(port)}));
  std::string text;
  // Rank 0 may have finished its first step before rank 1 says that it trains.
  const auto both_train = [&] {
    text = got(port, "/metrics");
    return text.find("\ndtrain_loss ") != std::string::npos &&
           text.find("\ndtrain_workers{state=\"training\"} 2\n") != std::string::npos;
  };
  ASSERT_TRUE(eventually(both_train, seconds(60))) << text << job->err();
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
                              "charset=utf-8\r\n"));
  EXPECT_THAT(text, ContainsRegex("\ndtrain_worker_resident_memory_bytes\\{rank=\"1\"\\} [0-9]+\n"));
  EXPECT_THAT(text, HasSubstr("\ndtrain_restarts_total 0\n"));
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  // No more than that is to be had there.
  for (const char* path : {"/status", "/stop", "/"}) EXPECT_THAT(got(port, path), HasSubstr("404 Not Found"));
  // The parser of Prometheus' own client reads it, where there is one.
  write_file(folder_ / "metrics.txt", text.substr(text.find("\r\n\r\n") + 4));
  const char* const python = std::getenv("DTRAIN_METRICS_PYTHON");
  const std::string script =
      "import sys\n"
      "try: from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n"
      "except ImportError: sys.exit(77)\n"
      "families = {f.name: f for f in parse(open(sys.argv[1]).read())}\n"
      "assert families['dtrain_worker_resident_memory_bytes'].unit == 'bytes'\n"
      "assert families['dtrain_restarts'].type == 'counter'\n"
      "assert families['dtrain_step'].samples[0].value > 0\n";
  const RunResult parsed =
      run({python != nullptr ? python : "python3", "-c", script, (folder_ / "metrics.txt").string()});
  if (parsed.exit_code == 77)
    GTEST_SKIP() << "the rest is checked; for Prometheus' own parser set DTRAIN_METRICS_PYTHON to a Python "
                    "with prometheus_client";
  EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
}

TEST_F(Control, MetricsOnAUnixSocketOrAPortOfTheSystemsChoice) {
  const fs::path path = folder_ / "metrics.sock";
  const auto job = start({"--metrics-listen", "unix:" + path.string(), "--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return fs::exists(path); })) << job->err();
  job->signal(SIGTERM);
  job->wait();
  EXPECT_FALSE(fs::exists(path));
  // As soon as it is there, too, with the job's own socket.
  for (int round = 0; round < 10; ++round) {
    const auto early =
        start({"--metrics-listen", "unix:" + path.string(), "--nproc_per_node=1", "sleep", "600"});
    const Deadline deadline = Deadline::after(seconds(60));
    while (!fs::exists(path) && !deadline.expired()) {
    }
    early->signal(SIGTERM);
    EXPECT_EQ(early->wait(), 128 + SIGTERM) << early->err();
    ASSERT_FALSE(fs::exists(path)) << "in round " << round;
  }
  const auto free = start({"--metrics-listen", "localhost:0", "--nproc_per_node=1", "sleep", "600"});
  ASSERT_TRUE(eventually([&] { return free->err().find("/metrics\n") != std::string::npos; })) << free->err();
  const std::string said = free->err();
  const int port = std::stoi(said.substr(said.find(":", said.find("http://") + 7) + 1));
  EXPECT_THAT(got(port, "/metrics"), HasSubstr("dtrain_world_size 1\n"));
}

TEST_F(Control, MetricsForOtherMachinesNeedAWord) {
  const RunResult refused = ask({"--metrics-listen=0.0.0.0:0", "--nproc_per_node=1", "true"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--metrics-listen: expected an address that only this machine reaches"));
  EXPECT_THAT(refused.err, HasSubstr("--metrics-remote"));
  const RunResult allowed =
      ask({"--metrics-listen=0.0.0.0:0", "--metrics-remote", "--nproc_per_node=1", "true"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  const Listener taken = listen_on("127.0.0.1", 0, Deadline::after(seconds(5)));
  const RunResult busy = ask({"--metrics-listen=" + taken.address.text(), "--nproc_per_node=1", "true"});
  EXPECT_EQ(busy.exit_code, 2);
  EXPECT_THAT(busy.err, HasSubstr("--metrics-listen: "));
}

}  // namespace
}  // namespace dtrain::test
