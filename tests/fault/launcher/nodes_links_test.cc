// kill -9 of the link of any node, the one that leads included: another one takes its place, and nothing else
// happens: workers keep their process ids, no restart is counted, the job ends as it would have. At any time:
// while nodes meet, while they run, stop and end. A few rounds; DTRAIN_FAULT_ROUNDS=50 for the long run; the
// seed is printed and can be given as DTRAIN_FAULT_SEED.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>
#include <thread>

#include "tests/fault/launcher/spared_job.h"
#include "tests/launch/nodes.h"

namespace dtrain::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

// A machine that does twenty other things at once must not miss the lease by itself.
const std::string kLease = "--lease-timeout=20";
constexpr seconds kPatience{60};

// Kills a launcher's link; 0 where there is none (any more), else its process id.
pid_t strike(const Running& launcher) {
  const pid_t link = launcher.child("dtrain-link");
  if (link > 0) ::kill(link, SIGKILL);  // 0 would be ourselves
  return link;
}

// Kills it and waits for the next one. False when none comes.
bool kill_link(const Running& launcher) {
  const pid_t link = strike(launcher);
  if (link <= 0) return false;
  return eventually(
      [&] {
        const pid_t next = launcher.child("dtrain-link");
        return next > 0 && next != link;
      },
      kPatience);
}

std::string all_output(Nodes& nodes) {
  std::string text;
  for (int i = 0; i < nodes.count(); ++i) text += nodes[i].out();
  return text;
}

class NodesLinks : public ::testing::Test {
 protected:
  NodesLinks() { std::printf("seed %d\n", seed_); }

  // Workers say who they are once, and end when they are told to.
  std::vector<std::string> workers(const std::vector<std::string>& options) const {
    std::vector<std::string> all{kLease, "--nproc_per_node=2"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"sh", "-c",
                           "echo $RANK $$ $TORCHELASTIC_RESTART_COUNT; until [ -e " +
                               (folder_ / "go").string() + " ]; do sleep 0.05; done"});
    return all;
  }
  void let_go() const { write_file(folder_ / "go", ""); }
  int any(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  void wait_a_moment(int most_ms) { std::this_thread::sleep_for(milliseconds(any(most_ms + 1))); }

  void expect_nothing_happened(Nodes& nodes, const std::string& before) {
    for (int i = 0; i < nodes.count(); ++i)
      EXPECT_EQ(nodes[i].wait(kPatience), 0) << i << "\n" << nodes.errors();
    EXPECT_EQ(all_output(nodes), before) << "workers were started again\n" << nodes.errors();
    EXPECT_TRUE(eventually([&] { return nodes.marked() == 0; }));
  }

  const TempDir folder_;
  int rounds_ = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 1);
  int seed_ = rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  std::mt19937 random_{static_cast<unsigned>(seed_)};
};

TEST_F(NodesLinks, OfEachNodeInTurnAreReplacedAndWorkersDoNotNotice) {
  struct Shape {
    int count;
    std::string nnodes;
    std::vector<std::string> options;
  };
  const std::vector<Shape> shapes{
      {2, "2", {}}, {3, "2:3", {"--max-restarts=3"}}, {4, "3", {"--spares=1", "--max-restarts=3"}}};
  for (const Shape& shape : shapes) {
    std::filesystem::remove(folder_ / "go");
    Nodes nodes(shape.count, workers(shape.options), shape.nnodes);
    const int lines = 2 * (shape.nnodes == "3" ? 3 : shape.count);
    ASSERT_TRUE(eventually([&] { return nodes.lines() == lines; }, kPatience)) << nodes.errors();
    const std::string before = all_output(nodes);
    for (int node = 0; node < shape.count; ++node) ASSERT_TRUE(kill_link(nodes[node])) << nodes.errors();
    // Twice in a row, and two at once.
    for (const int node : {0, 0, 1, 0}) ASSERT_TRUE(kill_link(nodes[node])) << nodes.errors();
    for (const int node : {0, 1}) EXPECT_GT(strike(nodes[node]), 0);
    let_go();
    expect_nothing_happened(nodes, before);
    EXPECT_THAT(nodes[0].err(), HasSubstr("another one has taken its place"));
  }
}

TEST_F(NodesLinks, RenewTheLeaseOfTheOnesBefore) {
  std::vector<std::string> arguments = workers({});
  arguments.front() = "--lease-timeout=5";
  Nodes nodes(2, arguments);
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; }, kPatience)) << nodes.errors();
  const std::string before = all_output(nodes);
  for (const int node : {0, 1}) ASSERT_TRUE(kill_link(nodes[node]));
  std::this_thread::sleep_for(seconds(8));  // longer than the lease, and than others wait for a node
  let_go();
  expect_nothing_happened(nodes, before);
}

TEST_F(NodesLinks, MayBeKilledWhileNodesMeetAndWhenTheyEnd) {
  for (int round = 0; round < 2 * rounds_ && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::filesystem::remove(folder_ / "go");
    const std::vector<std::string> arguments = workers({"--max-restarts=2"});
    Nodes nodes(2, arguments, "3");
    for (int i = 0; i < 2; ++i) {
      const int node = any(2);
      ASSERT_TRUE(eventually([&] { return nodes[node].child("dtrain-link") > 0; }, kPatience));
      wait_a_moment(30);
      ASSERT_TRUE(kill_link(nodes[node])) << nodes.errors();
    }
    nodes.add(2, arguments, "3");
    wait_a_moment(50);
    const int forming = any(3);
    ASSERT_TRUE(eventually([&] { return nodes[forming].child("dtrain-link") > 0; }, kPatience));
    ASSERT_TRUE(kill_link(nodes[forming])) << nodes.errors();
    ASSERT_TRUE(eventually([&] { return nodes.lines() == 6; }, kPatience)) << nodes.errors();
    const std::string before = all_output(nodes);
    let_go();
    wait_a_moment(150);
    strike(nodes[any(3)]);
    expect_nothing_happened(nodes, before);
  }
}

TEST_F(NodesLinks, MayBeKilledWhileTheOthersStopAndStartAgain) {
  for (int round = 0; round < rounds_ && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    for (const std::string nnodes : {"2", "1:2"}) {
      Nodes nodes(2,
                  {kLease, "--nproc_per_node=1", "--max-restarts=1", "sh", "-c",
                   "echo $RANK $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                   "[ $RANK = 1 ] && { sleep 0.3; exit 9; }; "
                   "trap 'sleep 1; exit 1' TERM; while :; do sleep 0.05; done"},
                  nnodes);
      ASSERT_TRUE(eventually([&] { return nodes.lines() >= 2; }, kPatience)) << nodes.errors();
      wait_a_moment(1200);
      const int node = any(2);
      ASSERT_TRUE(kill_link(nodes[node])) << nodes.errors();
      for (int i : {0, 1}) EXPECT_EQ(nodes[i].wait(kPatience), 0) << nodes.errors();
      EXPECT_EQ(SparedJob::count(all_output(nodes), " 1\n"), 2U) << "one restart, of both\n"
                                                                 << nodes.errors();
    }
  }
}

TEST_F(NodesLinks, ThatDieAgainAndAgainAreGivenUpWithOneCause) {
  std::vector<std::string> arguments = workers({});
  arguments.front() = "--lease-timeout=6";
  Nodes nodes(2, arguments);
  ASSERT_TRUE(eventually([&] { return nodes.lines() == 4; }, kPatience)) << nodes.errors();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(kill_link(nodes[1])) << nodes.errors();
  EXPECT_GT(strike(nodes[1]), 0);
  EXPECT_EQ(nodes[1].wait(kPatience), 4) << nodes.errors();
  EXPECT_THAT(nodes[1].err(), HasSubstr("was killed by SIGKILL, for the 6th time within 60 s"));
  EXPECT_TRUE(eventually([&] { return nodes[1].marked().empty(); })) << "workers without a lease";
  EXPECT_EQ(nodes[0].wait(kPatience), 4) << nodes.errors();
  EXPECT_THAT(nodes[0].err(), HasSubstr("node_rank 1"));
}

// Four nodes and a spare, one of which leads. The kills are spread over the first half of the steps, not over
// a time: a machine that trains fast must not be through before the last of them.
TEST_F(NodesLinks, CostTrainingNothing) {
  constexpr int kSteps = 1600, kKills = 4;
  write_small_dataset(folder_ / "data", 1000, 100);
  std::optional<std::size_t> undisturbed;
  const std::vector<std::string> recipe{"--checkpoint-every", "50"};
  for (int job_number = 0; job_number <= rounds_ && !HasFailure(); ++job_number) {
    const auto run_dir = folder_ / ("run" + std::to_string(job_number));
    SparedJob job(folder_ / "data", run_dir, kSteps, recipe, {kLease});
    if (job_number > 0) {
      ASSERT_TRUE(eventually([&] { return job.waits_as_spare(SparedJob::kNodes); }, kPatience))
          << job.errors();
      for (int kill = 0; kill < kKills; ++kill) {
        const int victim = kill == 0 ? 0 : any(SparedJob::kPlaces);
        const auto after = static_cast<std::size_t>(5 + kill * kSteps / (2 * kKills) + any(kSteps / 16));
        ASSERT_TRUE(eventually([&] { return job.steps() >= after; }, kPatience)) << job.errors();
        ASSERT_TRUE(kill_link(job[victim]))
            << "place " << victim << ", after step " << after << " of " << kSteps << "\n"
            << job.errors();
      }
    }
    for (int place = 0; place < SparedJob::kPlaces; ++place)
      EXPECT_EQ(job[place].wait(seconds(300)), 0) << "place " << place << "\n" << job.errors();
    EXPECT_THAT(job.errors(), Not(HasSubstr("restart"))) << "nothing had to be started again";
    const std::size_t weights = final_weights(run_dir);
    if (!undisturbed) undisturbed = weights;
    EXPECT_EQ(weights, *undisturbed);
    std::filesystem::remove_all(run_dir);
  }
}

}  // namespace
}  // namespace dtrain::test
