// A worker that no launcher told how many threads to use.
#include "training/start/threads.h"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

Placement placed(JobSystem system, int neighbours) {
  Placement placement;
  placement.system = system;
  placement.local_world_size = neighbours;
  return placement;
}

TEST(Threads, CoresAreSharedByTheWorkersOfANode) {
  EXPECT_EQ(worker_threads(placed(JobSystem::openmpi, 4), {}, 16), 4);
  EXPECT_EQ(worker_threads(placed(JobSystem::openmpi, 4), {}, 1), 1);
  EXPECT_EQ(worker_threads(placed(JobSystem::environment, 3), {}, 16), 5);
  EXPECT_EQ(worker_threads({}, {}, 16), 16);
}

TEST(Threads, SlurmKnowsWhatATaskMayUse) {
  EXPECT_EQ(worker_threads(placed(JobSystem::slurm, 4), {{"SLURM_CPUS_PER_TASK", "6"}}, 64), 6);
  EXPECT_EQ(worker_threads(placed(JobSystem::slurm, 4), {{"SLURM_CPUS_PER_TASK", "6"}}, 2), 2);
  EXPECT_EQ(worker_threads(placed(JobSystem::slurm, 4), {{"SLURM_CPUS_ON_NODE", "8"}}, 64), 2);
  EXPECT_EQ(worker_threads(placed(JobSystem::slurm, 4), {{"SLURM_CPUS_ON_NODE", "nonsense"}}, 64), 16);
}

}  // namespace
}  // namespace dtrain
