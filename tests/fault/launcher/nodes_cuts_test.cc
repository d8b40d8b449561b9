// The network between hosts is cut, in both directions or one: both sides say so and end, or continue without
// the host that was cut off; it never writes once the others continue. Needs root; short by default,
// DTRAIN_FAULT_ROUNDS=20 for the long run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/cluster/labs.h"
#include "tests/launch/running.h"

namespace dtrain::test {
namespace {

using ::testing::HasSubstr;

constexpr int kHosts = 4;
constexpr int kCut = 2;
constexpr std::array kKinds = {"both", "in", "out"};  // one a round
constexpr auto kPatience = std::chrono::seconds(40);

class Cuts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
    lab_.emplace(kHosts);
  }

  std::unique_ptr<Running> launcher(int host, const std::string& nnodes, const std::string& script,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> launch{program("dtrain-launch"), "--nnodes=" + nnodes,
                                    "--node_rank=" + std::to_string(host),
                                    "--master_addr=" + NetnsLab::address(0), "--nproc_per_node=2"};
    launch.insert(launch.end(), more.begin(), more.end());
    launch.insert(launch.end(), {"sh", "-c", script});
    std::vector<std::string> command = lab_->command(host, launch);
    command[0] = "/usr/bin/env";
    return std::make_unique<Running>(
        command, std::map<std::string, std::string>{{"DTRAIN_TOKEN", std::string(64, 'c')}});
  }

  void start(const std::string& nnodes, const std::string& script,
             const std::vector<std::string>& more = {}) {
    launchers_.clear();
    for (int host = 0; host < kHosts; ++host) launchers_.push_back(launcher(host, nnodes, script, more));
  }

  int lines() const {
    std::ptrdiff_t lines = 0;
    for (const auto& launcher : launchers_) {
      const std::string out = launcher->out();
      lines += std::count(out.begin(), out.end(), '\n');
    }
    return static_cast<int>(lines);
  }

  std::string errors() const {
    std::string text;
    for (const auto& launcher : launchers_) text += "---\n" + launcher->err();
    return text;
  }

  bool nothing_left() const {
    return std::all_of(launchers_.begin(), launchers_.end(),
                       [](const auto& launcher) { return launcher->marked().empty(); });
  }

  int rounds_ = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1);
  std::optional<NetnsLab> lab_;
  std::vector<std::unique_ptr<Running>> launchers_;
};

TEST_F(Cuts, EndTheJobOnBothSides) {
  for (int round = 0; round < rounds_; ++round) {
    start(std::to_string(kHosts), "echo up; exec sleep 100");
    ASSERT_TRUE(eventually([&] { return lines() == 2 * kHosts; }, kPatience)) << errors();
    const std::string kind = kKinds[static_cast<std::size_t>(round) % kKinds.size()];
    lab_->cut(kCut, kind);
    const auto cut_at = std::chrono::steady_clock::now();
    for (int host = 0; host < kHosts; ++host) {
      EXPECT_EQ(launchers_[static_cast<std::size_t>(host)]->wait(kPatience), 4) << errors();
      const std::string said = launchers_[static_cast<std::size_t>(host)]->err();
      if (host != kCut) {
        EXPECT_THAT(said, HasSubstr("node_rank 2 (host h2")) << errors();
      }
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - cut_at).count();
    std::printf("cut %s: all out after %.1f s\n", kind.c_str(), took);
    EXPECT_LT(took, 30) << errors();
    EXPECT_TRUE(eventually([&] { return nothing_left(); }));
    lab_->heal(kCut);
  }
}

// Longer than TCP waits, shorter than the lease.
TEST_F(Cuts, ShorterThanTheLeaseCostNothingButTheWait) {
  start(std::to_string(kHosts), "echo up; sleep 24; echo down", {"--lease-timeout=30"});
  ASSERT_TRUE(eventually([&] { return lines() == 2 * kHosts; }, kPatience)) << errors();
  lab_->cut(kCut, "both");
  std::this_thread::sleep_for(std::chrono::seconds(rounds_ > 1 ? 22 : 17));
  lab_->heal(kCut);
  for (int host = 0; host < kHosts; ++host)
    EXPECT_EQ(launchers_[static_cast<std::size_t>(host)]->wait(kPatience), 0) << errors();
  EXPECT_EQ(lines(), 4 * kHosts);
}

// Nanoseconds of the lines "WORLD_SIZE RANK time" in a host's file: the last with the old size, the first
// with the new one.
struct Times {
  long last_of_eight = 0;
  long first_of_six = std::numeric_limits<long>::max();
};

Times times_in(const std::filesystem::path& file) {
  Times times;
  std::ifstream in(file);
  int size = 0, rank = 0;
  long time = 0;
  while (in >> size >> rank >> time) {
    if (size == 8) times.last_of_eight = std::max(times.last_of_eight, time);
    if (size == 6) times.first_of_six = std::min(times.first_of_six, time);
  }
  return times;
}

TEST_F(Cuts, LetAnElasticJobGoOnOnlyWhenTheOtherSideHasStopped) {
  for (int round = 0; round < rounds_; ++round) {
    const TempDir folder;
    start("3:4",
          "while [ ! -e " + (folder / "done").string() + " ]; do echo $WORLD_SIZE $RANK $(date +%s%N) >> " +
              folder.path().string() + "/$(hostname).$LOCAL_RANK; sleep 0.02; done",
          {"--max-restarts=1", "--lease-timeout=4", "--rdzv-conf=last_call_timeout=60"});
    const auto file = [&](int host) {
      return folder / std::string("h").append(std::to_string(host)).append(".0");
    };
    ASSERT_TRUE(eventually(
        [&] {
          for (int host = 0; host < kHosts; ++host) {
            if (times_in(file(host)).last_of_eight == 0) return false;
          }
          return true;
        },
        kPatience))
        << errors();
    lab_->cut(kCut, kKinds[static_cast<std::size_t>(round + 1) % kKinds.size()]);
    ASSERT_TRUE(eventually([&] { return times_in(file(0)).first_of_six < std::numeric_limits<long>::max(); },
                           kPatience))
        << errors();
    EXPECT_EQ(launchers_[kCut]->wait(kPatience), 4) << errors();
    write_file(folder / "done", "");
    for (int host = 0; host < kHosts; ++host) {
      if (host == kCut) continue;
      EXPECT_EQ(launchers_[static_cast<std::size_t>(host)]->wait(kPatience), 0) << errors();
      EXPECT_GT(times_in(file(host)).first_of_six, times_in(file(kCut)).last_of_eight)
          << "two writers at once";
    }
    EXPECT_TRUE(eventually([&] { return nothing_left(); }));
    lab_->heal(kCut);
  }
}

}  // namespace
}  // namespace dtrain::test
