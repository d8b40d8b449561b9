// On a lab of hosts: launcher, node agent and subreaper of one of them are stopped, blocked or killed, and
// its network is cut in both directions, in one, or its connections are reset, all drawn at random. Workers
// write the number of their start and the time; no line of one start may be later than the first of the next,
// and every launcher that can still act ends, or has workers that work, in time. The same with workers that
// train: nothing in the run is of an earlier start than it should be. Needs root. DTRAIN_FAULT_ROUNDS=67 for
// 200 rounds (an hour and a half); the seed is printed and can be given as DTRAIN_FAULT_SEED.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/cluster/labs.h"
#include "tests/fault/launcher/blocked.h"
#include "tests/launch/running.h"
#include "tests/support/json.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr int kHosts = 4;
// Until the workers of all hosts are at work, six that train among them: only ends what hangs.
constexpr seconds kUntilWorking{180};
// The lease of 4 s, the leader's 2 s more, and what it takes to see that nothing else happens.
constexpr seconds kLeast{12};
// Lease + 15 s by itself (19; the slowest is printed); more on a machine that does other things too.
constexpr seconds kUntilSettled{40};
constexpr seconds kInTime{25};
// Who has written for as long is at work.
constexpr seconds kFresh{1};
// A beat or two: all launchers know who else there is.
constexpr seconds kUntilHeard{2};

constexpr std::array kNetwork = {"none", "both", "in", "out", "reset"};
constexpr std::array kParts = {"launcher", "node agent", "subreaper"};

// No signal: the part is held by a Blocked.
constexpr int kBlock = -1;

// A job on the lab's first hosts: elastic, led by host 0 as long as it lives; or with a spare on one host
// more, and led by whom a majority elects. Its workers write lines, or train.
struct Kind {
  int hosts = 3, nodes = 3;
  std::vector<std::string> options;
  bool trains = false;
};
const Kind kElastic{3, 3, {"--nnodes=2:3", "--rdzv-conf=last_call_timeout=60"}};
const Kind kSpared{4, 3, {"--nnodes=3", "--spares=1"}};
const Kind kTraining{4, 3, {"--nnodes=3", "--spares=1"}, true};

struct Fault {
  int victim = 0;
  std::array<int, 3> acts{};  // signals to the parts, 0: none; or kBlock
  std::string network;

  std::string text() const {
    std::string text = "host " + std::to_string(victim) + ", network " + network;
    for (std::size_t part = 0; part < kParts.size(); ++part) {
      if (acts[part] != 0)
        text += std::string(", ") + kParts[part] +
                (acts[part] == SIGKILL   ? " killed"
                 : acts[part] == SIGSTOP ? " stopped"
                                         : " blocked");
    }
    return text;
  }
};

// The moments at which the workers of one start wrote.
struct Writing {
  long first = std::numeric_limits<long>::max(), last = 0;
};

class Fencing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_.emplace(kHosts);
  }

  std::vector<std::string> worker_command(const TempDir& folder) const {
    if (kind_.trains) {
      return {"dtrain",
              "train",
              "--model",
              "mlp",
              "--dataset",
              "synthetic:1x28x28,10,6000",
              "--log-every",
              "1",
              "--log-samples",
              "--checkpoint-every",
              "20",
              "--eval-every",
              "0",
              "--epochs",
              "100000",
              "--global-batch-size",
              "60",
              "--run-dir",
              (folder / "run").string()};
    }
    return {"sh", "-c",
            "while [ ! -e " + (folder / "done").string() +
                " ]; do echo $TORCHELASTIC_RESTART_COUNT $(date +%s%N) >> " + folder.path().string() +
                "/$(hostname).$LOCAL_RANK; sleep 0.02; done"};
  }

  // All workers are at work, and the spare is in the job: one that came a moment ago knows of no successors.
  bool works(const TempDir& folder) const {
    const bool spared = kind_.hosts > kind_.nodes;
    if (spared && launchers_.back()->err().find("waiting: spare") == std::string::npos) return false;
    if (kind_.trains) return metrics_of(folder).size() > 50;
    return std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2 * kind_.nodes;
  }

  // The job is to end. Training ends with a checkpoint, on a signal.
  void end_job(const TempDir& folder, const Fault& fault) {
    write_file(folder / "done", "");
    if (!kind_.trains) return;
    for (int host = 0; host < kind_.hosts; ++host) {
      if (host != fault.victim) launcher(host).signal(SIGTERM);
    }
  }

  void start(const TempDir& folder) {
    launchers_.clear();
    for (int host = 0; host < kind_.hosts; ++host) {
      std::vector<std::string> launch{program("dtrain-launch"),
                                      "--node_rank=" + std::to_string(host),
                                      "--master_addr=" + NetnsLab::address(0),
                                      "--nproc_per_node=2",
                                      "--max-restarts=3",
                                      "--lease-timeout=4",
                                      "--shutdown-timeout=1"};
      launch.insert(launch.end(), kind_.options.begin(), kind_.options.end());
      const std::vector<std::string> worker = worker_command(folder);
      launch.insert(launch.end(), worker.begin(), worker.end());
      std::vector<std::string> command = lab_->command(host, launch);
      command[0] = "/usr/bin/env";
      launchers_.push_back(std::make_unique<Running>(
          command, std::map<std::string, std::string>{{"DTRAIN_TOKEN", std::string(64, 'c')},
                                                      {"OMP_NUM_THREADS", "1"}}));
    }
  }

  static std::map<int, Writing> writing_in(const TempDir& folder) {
    std::map<int, Writing> starts;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::ifstream in(entry.path());
      int start = 0;
      for (long time = 0; in >> start >> time;) {
        starts[start].first = std::min(starts[start].first, time);
        starts[start].last = std::max(starts[start].last, time);
      }
    }
    return starts;
  }

  Running& launcher(int host) { return *launchers_[static_cast<std::size_t>(host)]; }

  std::array<pid_t, 3> parts_of(int host) {
    return {launcher(host).pid(), launcher(host).child("dtrain-agent"), launcher(host).subreaper()};
  }

  // Kills come last: a part that is to be held must not end before because another one is gone.
  void strike(const Fault& fault, const std::array<pid_t, 3>& pids) {
    for (const int act : {kBlock, SIGSTOP, SIGKILL}) {
      for (std::size_t part = 0; part < pids.size(); ++part) {
        ASSERT_GT(pids[part], 0) << kParts[part];
        if (fault.acts[part] != act) continue;
        if (act == kBlock)
          blocked_[part].emplace(pids[part]);
        else
          ::kill(pids[part], act);
      }
    }
    if (fault.network == "reset") {
      lab_->run(fault.victim, {"ss", "-K", "dport", "=", "29501", "or", "sport", "=", "29501"});
    } else if (fault.network != "none") {
      lab_->cut(fault.victim, fault.network);
    }
  }

  std::string errors() const {
    std::string text;
    for (const auto& launcher : launchers_) text += "---\n" + launcher->err();
    return text;
  }

  // The start and the moment of the last line that a host's workers have written; 0 where there is none.
  std::pair<int, long> last_line_of(const TempDir& folder, int host) const {
    std::pair<int, long> last{0, 0};
    for (int worker = 0; worker < 2; ++worker) {
      std::ifstream in(folder / ("h" + std::to_string(host) + "." + std::to_string(worker)));
      in.seekg(0, std::ios::end);
      in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - 200));
      std::string part;
      std::getline(in, part);
      for (std::pair<int, long> line; in >> line.first >> line.second;)
        if (line.second > last.second) last = line;
    }
    return last;
  }

  // The hosts whose workers work in the newest start.
  std::set<int> at_work(const TempDir& folder) const {
    const auto fresh = [](long time, double unit) {
      const double now =
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      return now - static_cast<double>(time) * unit < std::chrono::duration<double>(kFresh).count();
    };
    std::set<int> hosts;
    if (kind_.trains) {
      // One worker writes for all: those of the newest start that have not ended.
      const auto lines = metrics_of(folder);
      const auto last =
          std::find_if(lines.rbegin(), lines.rend(), [](const auto& line) { return line.contains("time"); });
      if (last == lines.rend() || !fresh(std::lround(last->at("time").template get<double>() * 1e6), 1e-6))
        return {};
      for (int host = 0; host < kind_.hosts; ++host) {
        if (has_trainers(host)) hosts.insert(host);
      }
      return hosts;
    }
    int newest = 0;
    std::vector<std::pair<int, long>> lines;
    for (int host = 0; host < kind_.hosts; ++host) {
      lines.push_back(last_line_of(folder, host));
      newest = std::max(newest, lines.back().first);
    }
    for (int host = 0; host < kind_.hosts; ++host) {
      const auto& [start, time] = lines[static_cast<std::size_t>(host)];
      if (start == newest && fresh(time, 1e-9)) hosts.insert(host);
    }
    return hosts;
  }

  bool has_trainers(int host) const {
    const std::vector<pid_t> all = launchers_[static_cast<std::size_t>(host)]->marked();
    return std::any_of(all.begin(), all.end(), [](pid_t pid) {
      std::error_code error;
      return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename() ==
             "dtrain";
    });
  }

  // Each launcher that can act has ended, works, or waits as the spare that it always was.
  bool settled(const TempDir& folder, const Fault& fault) {
    const std::set<int> working = at_work(folder);
    for (int host = 0; host < kind_.hosts; ++host) {
      if (host == fault.victim && fault.acts[0] != 0) continue;
      const bool spare = host >= kind_.nodes && static_cast<int>(working.size()) >= kind_.nodes;
      if (!spare && !working.contains(host) && launcher(host).wait(std::chrono::milliseconds(0)) == -1)
        return false;
    }
    return true;
  }

  void settle(const TempDir& folder, const Fault& fault) {
    const auto struck = Clock::now();
    auto unsettled = struck;
    for (auto now = struck; now < struck + kLeast || (unsettled == now && now < struck + kUntilSettled);
         std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
      now = Clock::now();
      if (!settled(folder, fault)) unsettled = now;
    }
    const double took = std::chrono::duration<double>(unsettled - struck).count();
    std::printf("%s: settled after %.1f s\n", fault.text().c_str(), took);
    std::fflush(stdout);
    slowest_ = std::max(slowest_, took);
    EXPECT_LT(unsettled, struck + kUntilSettled) << "a launcher neither ended nor continued\n" << errors();
  }

  void round(const Fault& fault) {
    const TempDir folder;
    start(folder);
    ASSERT_TRUE(eventually([&] { return works(folder); }, kUntilWorking)) << errors();
    std::this_thread::sleep_for(kUntilHeard);
    const std::array pids = parts_of(fault.victim);
    strike(fault, pids);
    settle(folder, fault);
    end_job(folder, fault);
    for (int host = 0; host < kind_.hosts; ++host) {
      if (host == fault.victim && fault.acts[0] != 0) continue;
      EXPECT_NE(launcher(host).wait(kInTime), -1) << "host " << host << " still runs\n" << errors();
    }
    lab_->heal(fault.victim);
    // Who was stopped after the process above it had gone is let run on by nobody else.
    for (std::size_t part = 0; part < pids.size(); ++part) {
      blocked_[part].reset();
      if (fault.acts[part] == SIGSTOP) ::kill(pids[part], SIGCONT);
    }
    EXPECT_NE(launcher(fault.victim).wait(kInTime), -1) << errors();
    const auto left = [&] {
      return std::any_of(launchers_.begin(), launchers_.end(),
                         [](const auto& one) { return !one->marked().empty(); });
    };
    EXPECT_TRUE(eventually([&] { return !left(); })) << errors();
    const std::map<int, Writing> starts = kind_.trains ? training_in(folder) : writing_in(folder);
    for (auto next = starts.begin(), before = next++; next != starts.end(); before = next++) {
      EXPECT_LT(before->second.last, next->second.first)
          << "start " << before->first << " still wrote in start " << next->first << "\n"
          << errors();
    }
    restarts_ += starts.size() > 1;
  }

  static std::vector<Json> metrics_of(const TempDir& folder) {
    std::vector<Json> lines;
    std::ifstream in(folder / "run" / "metrics.jsonl");
    // One without its end is being written.
    for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(Json::parse(line));
    return lines;
  }

  // What the run's own records say: each line has its start, steps follow each other, and no start wrote
  // after the next one had begun to, neither lines nor checkpoints.
  static std::map<int, Writing> training_in(const TempDir& folder) {
    std::map<int, Writing> starts;
    int newest = 0;
    for (const auto& line : metrics_of(folder)) {
      const int start = line.at("start");
      const long time = std::lround(line.at("time").get<double>() * 1e6);
      EXPECT_GE(start, newest) << "a line of start " << start << " after one of start " << newest;
      newest = std::max(newest, start);
      starts[start].first = std::min(starts[start].first, time);
      starts[start].last = std::max(starts[start].last, time);
    }
    expect_samples_in_order(folder / "run" / "logs", newest);
    const RunGenerations told = RunGenerations::read(folder / "run" / "checkpoints");
    EXPECT_EQ(told.newest(), newest);
    NullLog log;
    for (const auto& entry : CheckpointStore(folder / "run" / "checkpoints", 0, log).list()) {
      const auto& extra = load_checkpoint(entry.path).state.extra;
      EXPECT_EQ(told.superseded_by(std::stoi(extra.at(kStartEntry)), entry.step), 0) << entry.path;
    }
    return starts;
  }

  // Each worker's log of samples has its start in each line, and none of a start after one of a later start.
  static void expect_samples_in_order(const std::filesystem::path& logs, int newest) {
    for (const auto& entry : std::filesystem::directory_iterator(logs)) {
      if (!entry.path().filename().string().starts_with("samples-")) continue;
      std::ifstream in(entry.path());
      int start = 1;
      for (std::string line; std::getline(in, line);) {
        const Json record = Json::parse_or_null(line);
        if (record.is_null()) continue;  // of a worker that was killed as it wrote
        EXPECT_GE(record.at("start"), start) << entry.path() << ": a line of an earlier start after it";
        start = std::max<int>(start, record.at("start"));
      }
      EXPECT_LE(start, newest) << entry.path();
    }
  }

  void draw(const Kind& kind, int rounds);

  Kind kind_;
  std::optional<NetnsLab> lab_;
  std::vector<std::unique_ptr<Running>> launchers_;
  std::array<std::optional<Blocked>, 3> blocked_;
  int restarts_ = 0;
  double slowest_ = 0;
};

void Fencing::draw(const Kind& kind, int rounds) {
  kind_ = kind;
  const int seed =
      rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  std::printf("seed %d, %d rounds\n", seed, rounds);
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto cannot_block = Blocked::unavailable();
  if (cannot_block) std::printf("parts are stopped instead of blocked: %s\n", cannot_block->c_str());
  for (int i = 0; i < rounds && !HasFailure(); ++i) {
    constexpr std::array kActs = {0, kBlock, SIGSTOP, SIGKILL};
    Fault fault;
    fault.victim = static_cast<int>(random() % static_cast<unsigned>(kind_.nodes));
    for (int& act : fault.acts) {
      act = kActs[random() % kActs.size()];
      if (act == kBlock && cannot_block) act = SIGSTOP;
    }
    fault.network = kNetwork[random() % kNetwork.size()];
    SCOPED_TRACE("round " + std::to_string(i) + ": " + fault.text());
    round(fault);
  }
  std::printf("the job continued in another start in %d rounds; all settled after at most %.1f s\n",
              restarts_, slowest_);
}

TEST_F(Fencing, NoTwoStartsWriteAtOnceWhateverStandsStill) {
  draw(kElastic, rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1));
}

TEST_F(Fencing, NoTwoLeadersHaveWorkersAtOnce) {
  draw(kSpared, rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1));
}

TEST_F(Fencing, NoStartOfTrainingWritesAfterAnother) {
  draw(kTraining, rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1));
}

// The others hear of no end, and wait for the lease.
TEST_F(Fencing, ALinkThatIsKilledBehindACutIsALostNode) {
  kind_ = kElastic;
  for (int i = 0; i < rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1) && !HasFailure(); ++i) {
    const std::array networks = {"both", "out", "in"};
    Fault fault;
    fault.victim = 1 + i % 2;
    fault.acts = {0, SIGKILL, 0};
    fault.network = networks[static_cast<std::size_t>(i) % networks.size()];
    SCOPED_TRACE(fault.text());
    round(fault);
    EXPECT_EQ(restarts_, i + 1) << "the others have continued\n" << errors();
  }
}

// Nobody is left who could end the workers of host 0, the writing one among them: they see for themselves.
TEST_F(Fencing, WorkersWhoseGuardiansAllStandStillWriteNothing) {
  kind_ = kTraining;
  const TempDir folder;
  start(folder);
  ASSERT_TRUE(eventually([&] { return works(folder); }, kUntilWorking)) << errors();
  std::this_thread::sleep_for(kUntilHeard);
  const std::array pids = parts_of(0);
  const pid_t guard = launcher(0).guard();
  ASSERT_GT(guard, 0);
  // From above to below, so that nobody lets the next one run on.
  for (const pid_t pid : {pids[0], pids[1], guard, pids[2]}) ::kill(pid, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return metrics_of(folder).back().at("start") > 1; }, seconds(60))) << errors();
  Fault fault;
  fault.victim = 0;
  end_job(folder, fault);
  for (int host = 1; host < kind_.hosts; ++host) EXPECT_NE(launcher(host).wait(kInTime), -1) << errors();
  for (const pid_t pid : {pids[2], guard, pids[1], pids[0]}) ::kill(pid, SIGCONT);
  EXPECT_NE(launcher(0).wait(kInTime), -1) << errors();
  EXPECT_GT(training_in(folder).size(), 1U) << errors();
}

}  // namespace
}  // namespace dtrain::test
