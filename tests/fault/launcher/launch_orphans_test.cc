// The launcher or its subreaper is killed with -9 while workers have children in other groups and sessions:
// nobody may survive. DTRAIN_ORPHAN_ROUNDS rounds of each.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/launch/running.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kWorkers = 2;
constexpr int kProcessesEach = 6;  // the shell, its sleep, and four that ran away

// Children in the group, in a session of their own, daemonised by a double fork, and deaf to TERM and HUP.
constexpr const char* kFamily =
    "sleep 300 & setsid sleep 300 & (setsid sh -c 'trap \"\" TERM HUP; sleep 300; sleep 300' &); "
    "exec 3>&-; sleep 300 & wait; sleep 300";

struct Family {
  TempDir folder;
  Running job{{program("dtrain-launch"), "--nproc_per_node=" + std::to_string(kWorkers), "sh", "-c", kFamily},
              {{"TMPDIR", folder.path()}}};

  bool complete() const { return static_cast<int>(job.marked().size()) > kWorkers * kProcessesEach; }
};

// Milliseconds until nobody is left, or -1.
long time_to_vanish(const Running& job) {
  const auto start = std::chrono::steady_clock::now();
  if (!eventually([&] { return job.marked().empty(); }, seconds(10))) return -1;
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start).count();
}

int rounds() { return rounds_from_environment("DTRAIN_ORPHAN_ROUNDS", 5); }

void report(const char* what, long slowest, int count) {
  std::printf("%s: %d rounds, slowest %ld ms until all were gone\n", what, count, slowest);
}

TEST(LaunchOrphans, LauncherKilled) {
  long slowest = 0;
  for (int round = 0; round < rounds(); ++round) {
    Family family;
    ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
    family.job.signal(SIGKILL);
    const long took = time_to_vanish(family.job);
    ASSERT_GE(took, 0) << "survivors after 10 s";
    slowest = std::max(slowest, took);
    EXPECT_TRUE(eventually([&] { return std::filesystem::is_empty(family.folder.path()); }, seconds(5)));
    EXPECT_EQ(family.job.wait(), 128 + SIGKILL);
  }
  EXPECT_LT(slowest, 5000);
  report("launcher killed", slowest, rounds());
}

TEST(LaunchOrphans, SubreaperKilledThenTheLauncherCleansUp) {
  long slowest = 0;
  for (int round = 0; round < rounds(); ++round) {
    Family family;
    ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
    const pid_t subreaper = family.job.subreaper();
    ASSERT_GT(subreaper, 0);
    ::kill(subreaper, SIGKILL);
    const long took = time_to_vanish(family.job);
    ASSERT_GE(took, 0) << "survivors after 10 s";
    slowest = std::max(slowest, took);
    EXPECT_EQ(family.job.wait(), 1);
    EXPECT_NE(family.job.err().find("subreaper process was killed"), std::string::npos) << family.job.err();
  }
  EXPECT_LT(slowest, 5000);
  report("subreaper killed", slowest, rounds());
}

TEST(LaunchOrphans, GuardKilledThenTheLauncher) {
  Family family;
  ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
  ASSERT_GT(family.job.guard(), 0);
  ::kill(family.job.guard(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return family.job.guard() == 0 || !family.job.marked().empty(); }));
  family.job.signal(SIGKILL);
  EXPECT_GE(time_to_vanish(family.job), 0) << "survivors after 10 s";
}

TEST(LaunchOrphans, LauncherKilledWhileTheSubreaperIsStopped) {
  Family family;
  ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
  ASSERT_GT(family.job.subreaper(), 0);
  ::kill(family.job.subreaper(), SIGSTOP);
  family.job.signal(SIGKILL);
  EXPECT_GE(time_to_vanish(family.job), 0) << "survivors after 10 s";
}

TEST(LaunchOrphans, LauncherAndSubreaperKilledTogether) {
  Family family;
  ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
  const pid_t subreaper = family.job.subreaper();
  ASSERT_GT(subreaper, 0);
  family.job.signal(SIGKILL);
  ::kill(subreaper, SIGKILL);
  EXPECT_GE(time_to_vanish(family.job), 0) << "survivors after 10 s";
}

TEST(LaunchOrphans, AStoppedSubreaperDoesNotKeepTheJob) {
  Family family;
  ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
  ASSERT_GT(family.job.subreaper(), 0);
  ::kill(family.job.subreaper(), SIGSTOP);
  family.job.signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(100));
  family.job.signal(SIGTERM);  // at once, please
  EXPECT_NE(family.job.wait(), -1) << family.job.err();
  EXPECT_TRUE(family.job.marked().empty());
}

// `monitor & exec dtrain-launch …`: the launcher has a child that it did not start.
class Strangers : public ::testing::Test {
 protected:
  // $1: where to note the stranger's pid; the rest: the job.
  static std::vector<std::string> beside_a_stranger(const std::string& note, const std::string& script,
                                                    const std::vector<std::string>& prefix = {}) {
    std::vector<std::string> argv = prefix;
    argv.insert(argv.end(),
                {"/bin/sh", "-c", "sleep 300 & echo $! > \"$1\"; exec \"$0\" --max-restarts=1 sh -c \"$2\"",
                 program("dtrain-launch"), note, script});
    return argv;
  }
};

TEST_F(Strangers, OutliveTheJob) {
  const TempDir folder;
  const std::string note = folder / "stranger";
  Running job(beside_a_stranger(note, "setsid sleep 300 & exit $((1 - TORCHELASTIC_RESTART_COUNT))"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.marked(), std::vector<pid_t>{std::stoi(read_file(note))}) << "the stranger, and no leftover";
}

TEST_F(Strangers, OutliveAKilledSubreaper) {
  const TempDir folder;
  const std::string note = folder / "stranger";
  Running job(beside_a_stranger(note, "setsid sleep 300 & (setsid sleep 300 &); echo up; sleep 300"));
  ASSERT_TRUE(eventually([&] { return !job.out().empty() && job.subreaper() > 0; })) << job.err();
  ::kill(job.subreaper(), SIGKILL);
  EXPECT_EQ(job.wait(), 1) << job.err();
  EXPECT_EQ(job.marked(), std::vector<pid_t>{std::stoi(read_file(note))});
}

// As in a container: whatever loses its parent there becomes the launcher's child.
TEST_F(Strangers, OutliveARestartUnderALauncherThatIsProcessOne) {
  if (run({"unshare", "--pid", "--fork", "--mount-proc", "true"}).exit_code != 0)
    GTEST_SKIP() << "no process namespace can be made here (needs root)";
  const TempDir folder;
  const std::string note = folder / "stranger", again = "kill -0 $(cat " + note + ") && echo alive; exit 0";
  Running job(beside_a_stranger(note, "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; " + again,
                                {"/usr/bin/unshare", "--pid", "--fork", "--mount-proc"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "alive\n") << job.err();
}

TEST_F(Strangers, AreReapedByALauncherThatIsProcessOne) {
  if (run({"unshare", "--pid", "--fork", "--mount-proc", "true"}).exit_code != 0)
    GTEST_SKIP() << "no process namespace can be made here (needs root)";
  const TempDir folder;
  // A stranger that loses its parent at once, and ends while the worker runs.
  Running job({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c",
               "sh -c 'sleep 0.3 &'; exec \"$0\" sh -c 'sleep 1; grep -l \"^State:.Z\" /proc/[0-9]*/status; "
               "echo end'",
               program("dtrain-launch")});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "end\n") << "zombies";
}

TEST(LaunchOrphans, LauncherKilledWhileItStarts) {
  for (int round = 0; round < rounds() * 2; ++round) {
    Running job({program("dtrain-launch"), "--nproc_per_node=8", "sh", "-c", "setsid sleep 300 & sleep 300"});
    std::this_thread::sleep_for(milliseconds(round * 3));
    job.signal(SIGKILL);
    ASSERT_EQ(job.wait(), 128 + SIGKILL);
    ASSERT_GE(time_to_vanish(job), 0) << "survivors; killed " << round * 3 << " ms after the start";
  }
}

TEST(LaunchOrphans, KilledByNameTheSubreaperSurvives) {
  Family family;
  ASSERT_TRUE(eventually([&] { return family.complete(); })) << family.job.err();
  // What `pkill -f dtrain` would look at.
  const pid_t subreaper = family.job.subreaper();
  const std::string folder = "/proc/" + std::to_string(subreaper);
  EXPECT_EQ(read_file(folder + "/comm"), "subreaper\n");
  EXPECT_EQ(read_file(folder + "/cmdline").find("dtrain"), std::string::npos);
  family.job.signal(SIGKILL);
  EXPECT_GE(time_to_vanish(family.job), 0);
}

}  // namespace
}  // namespace dtrain::test
