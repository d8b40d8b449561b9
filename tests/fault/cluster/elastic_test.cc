// A node is lost, the others continue without it, it comes back and is taken in again: 4 → 3 → 4 workers, one
// writer at any moment, every step once, every sample of an epoch once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "runtime/base/clock.h"
#include "tests/fault/cluster/job.h"

namespace dtrain::test {
namespace {

constexpr int kHosts = 4;
constexpr int kSteps = 600;  // 30 epochs of 20 steps of 50 samples
constexpr std::size_t kSamples = 1000;

bool is_writer(pid_t pid) {
  std::ifstream name("/proc/" + std::to_string(pid) + "/comm"),
      environment("/proc/" + std::to_string(pid) + "/environ");
  std::string comm, entry;
  std::getline(name, comm);
  if (comm != "dtrain") return false;
  while (std::getline(environment, entry, '\0')) {
    if (entry == "RANK=0") return true;
  }
  return false;
}

// Worker processes on the first `hosts` that are rank 0, those that write, and live at one moment: a look at
// /proc takes time, so each is looked at once more when all have been seen.
int writers(LabJob& job, int hosts) {
  std::vector<pid_t> found;
  for (int host = 0; host < hosts; ++host) {
    const auto marked = job.launcher(host).marked();
    std::copy_if(marked.begin(), marked.end(), std::back_inserter(found), is_writer);
  }
  return static_cast<int>(std::count_if(found.begin(), found.end(), is_writer));
}

// How many workers took the steps, without repetitions.
std::vector<int> worlds_of(const std::map<std::int64_t, std::vector<SamplesLine>>& steps) {
  std::vector<int> worlds;
  for (const auto& [step, lines] : steps) {
    if (worlds.empty() || worlds.back() != lines.front().world) worlds.push_back(lines.front().world);
  }
  return worlds;
}

TEST(ElasticNodes, FourThenThreeThenFourSeeEachSampleOnce) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const NetnsLab lab(kHosts);
  const TempDir folder;
  LabJob job(lab, folder, "3:4", kSteps);
  for (int host = 0; host < kHosts; ++host) job.start(host, {"--max-restarts=3"});
  ASSERT_TRUE(job.reaches(20)) << job.launcher(0).err();

  std::atomic<bool> done = false;
  int most_writers = 0;
  std::thread watcher([&] {
    while (!done) most_writers = std::max(most_writers, writers(job, 1));
  });
  lab.cut(2);
  const TimePoint lost = steady_clock().now();
  EXPECT_NE(job.launcher(2).wait(std::chrono::seconds(60)), -1);
  // Without the fourth the loss is written again; the steps since the last checkpoint are done again.
  const auto world_is = [&](int world) {
    return eventually(
        [&] {
          const auto seen = worlds_of(samples_of_steps(job.run_dir()));
          return !seen.empty() && seen.back() == world;
        },
        std::chrono::seconds(120));
  };
  EXPECT_TRUE(world_is(3)) << job.launcher(0).err();
  std::printf("node lost: the others continue after %.1f s\n",
              std::chrono::duration<double>(steady_clock().now() - lost).count());
  lab.heal(2);
  const TimePoint back = steady_clock().now();
  job.start(2, {"--max-restarts=3"});
  EXPECT_TRUE(world_is(4)) << job.launcher(0).err() << job.launcher(2).err();
  std::printf("node back: taken in after %.1f s\n",
              std::chrono::duration<double>(steady_clock().now() - back).count());
  for (int host = 0; host < kHosts; ++host)
    EXPECT_EQ(job.launcher(host).wait(std::chrono::seconds(300)), 0)
        << "h" << host << job.launcher(host).err();
  done = true;
  watcher.join();

  EXPECT_EQ(most_writers, 1);
  const auto steps = step_lines(job.run_dir());
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kSteps));
  for (std::size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i].step, static_cast<std::int64_t>(i + 1));
  const auto samples = samples_of_steps(job.run_dir());
  EXPECT_EQ(worlds_of(samples), (std::vector<int>{4, 3, 4}));
  const auto taken = times_taken(samples, kSamples);
  EXPECT_EQ(taken.size(), 30U);
  for (const auto& [epoch, counts] : taken)
    EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), static_cast<std::ptrdiff_t>(kSamples))
        << "epoch " << epoch;
  EXPECT_EQ(job.processes(), 0);
}

}  // namespace
}  // namespace dtrain::test
